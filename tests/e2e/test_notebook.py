"""The example's notebook, cell by cell, without Jupyter: its cells are plain Python."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples/first_round.ipynb"


@pytest.mark.long
@pytest.mark.learns
def test_the_notebook_runs_and_its_round_brings_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # and back: the notebook goes elsewhere
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mpl.use("svg")
    names: dict[str, Any] = {}
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: names.setdefault("shown", True))
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            # Outputs are not kept: they would differ by machine, and a reader of a change sees code alone.
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["shown"] and len(names["sent"]) == 3
    assert 0 < names["after"] < names["before"]
