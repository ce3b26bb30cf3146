"""Between them, the Makefile's targets run every test."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
# `pytest -m MARKER FOLDER...`, in a target's recipe.
RUNS = {
    marker: [ROOT / folder for folder in folders.split()]
    for marker, folders in re.findall(r"-m (\w+) (tests.*)", (ROOT / "Makefile").read_text("utf-8"))
}


def test_each_marker_that_make_test_leaves_out_has_a_target() -> None:
    (left_out,) = re.findall(r'addopts = "-m \'(.+?)\'', PROJECT)
    assert set(RUNS) == set(re.findall(r"not (\w+)", left_out))


def test_a_markers_target_names_the_folders_of_all_its_tests() -> None:
    for marker, folders in RUNS.items():
        uses = re.compile(rf"\bmark\.{marker}\b")
        marked = [path for path in (ROOT / "tests").rglob("test_*.py") if uses.search(path.read_text("utf-8"))]
        assert marked, marker
        for path in marked:
            assert any(path.is_relative_to(folder) for folder in folders), f"{path}: make runs -m {marker} elsewhere"
