"""The folders of the native engine's sources stand on each other as ARCHITECTURE.md's table has them."""

import re
from pathlib import Path

from phonograd.device_runtime.native_build.targets import NATIVE

ROOT = Path(__file__).parents[2]
SRC = NATIVE / "src"
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \|", re.MULTILINE)
INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)


def rows() -> list[list[str]]:
    """The folders of each row of the table, the lowest first."""
    section = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("## The native engine")[1].split("\n## ")[0]
    return [re.findall(r"\w+", row) for row in ROW.findall(section)]


def test_the_table_has_every_folder_once() -> None:
    folders = sorted(folder for row in rows() for folder in row)
    assert folders == sorted(path.name for path in SRC.iterdir() if path.is_dir())


def test_a_folder_includes_itself_and_those_above_it_in_the_table() -> None:
    known: set[str] = set()
    arrows = 0
    for row in rows():
        for folder in row:
            for path in (path for path in (SRC / folder).iterdir() if path.suffix in {".h", ".cpp", ".inc"}):
                others = set(INCLUDE.findall(path.read_text("utf-8"))) - {folder}
                assert others <= known, f"{path.relative_to(SRC)} includes {others - known}"
                arrows += len(others)
        known |= set(row)
    assert arrows > 50


def test_the_engine_has_no_streams() -> None:
    """Streams bring locales, 0.2 MB of the phone's program."""
    streams = re.compile(r"^#include <(\w*stream|locale|iomanip)>", re.MULTILINE)
    assert not [path for path in SRC.rglob("*") if path.is_file() and streams.search(path.read_text("utf-8"))]
