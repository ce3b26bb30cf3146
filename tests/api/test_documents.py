"""docs/python.md and examples/: their code runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import text_of
from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]


def run(code: str, folder: Path) -> str:
    command, place = [sys.executable, "-c", code], dict(os.environ, TMPDIR=str(folder))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=place, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    return done.stdout


@pytest.mark.long
def test_the_page_of_the_api(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text("utf-8"), re.DOTALL | re.M)
    assert len(blocks) > 5
    for seed, name in enumerate(("general", "alice", "bob")):
        (tmp_path / f"{name}.txt").write_bytes(text_of(seed, 200 if name == "general" else 60))
    said = run("\n".join(blocks), tmp_path)
    assert "LanguageModelConfig(cell='lstm', vocabulary=17, embedding=16," in said
    assert "round 1 closed: True" in said
    assert "alice: accepted, " in said
    assert "round 3 is open, 2 models" in said


@pytest.mark.long
def test_the_example_of_an_own_model(tmp_path: Path) -> None:
    said = run((ROOT / "examples/own_model.py").read_text("utf-8"), tmp_path)
    sizes = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in said.splitlines() if "bytes  " in line}
    assert sizes["rot-q1"] < sizes["delta-int8"] < sizes["full-f32"]
    assert "round 1: 3 updates" in said
    before, after = (float(figure) for figure in re.findall(r"[\d.]+", said.splitlines()[-1]))
    assert after < before


@pytest.mark.long
def test_the_example_of_one_round(tmp_path: Path) -> None:
    said = run((ROOT / "examples/one_round.py").read_text("utf-8"), tmp_path)
    first, *_, last = (float(figure) for figure in re.findall(r"users' perplexity ([\d.]+)", said))
    assert said.count("bytes up in rot-q4") == 3
    assert last < 0.95 * first
