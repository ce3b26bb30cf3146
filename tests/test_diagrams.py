"""The diagrams of README and docs: drawn by their code, and of what the product has."""

import re
from pathlib import Path
from typing import get_args

import pytest

from docs.pictures.diagram import Box, Diagram, draw
from docs.pictures.diagrams import DIAGRAMS, FOLDER, codecs
from phonograd.server_agg.storage.tables import Ending, StageName

ROOT = FOLDER.parents[1]


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_file_is_what_the_code_draws(name: str) -> None:
    assert (FOLDER / f"{name}.svg").read_text("utf-8") == draw(DIAGRAMS[name]), "python -m docs.pictures.diagrams"
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(f"pictures/{name}.svg)" in page.read_text("utf-8") for page in pages)


def test_sizes_and_perplexities_are_those_of_the_results() -> None:
    """Figures, not bytes, which another version of matplotlib may change."""
    found = [re.search("<dc:description>(.*?)<", text, re.DOTALL) for text in (codecs(), _read("codecs"))]
    assert found[0] and found[1] and found[0][1] == found[1][1]


def test_stages_and_states_are_the_products() -> None:
    assert {*DIAGRAMS["masked-stages"].boxes} == {*get_args(StageName)}
    java = (ROOT / "device_runtime/java/org/phonograd/RoundState.java").read_text("utf-8")
    stages = re.findall(r"^ +([A-Z]+),? //", java.partition("enum Stage {")[2].partition("}")[0], re.MULTILINE)
    assert [*DIAGRAMS["app-round"].boxes] == stages
    said = " ".join(box.text for box in DIAGRAMS["server-round"].boxes.values())
    assert all(ending in said for ending in get_args(Ending))


def test_no_text_is_cut() -> None:
    with pytest.raises(ValueError, match="'far too long' is wider than its box of 60 pixels"):
        draw(Diagram("", {"a": Box(0, 0, "far too long")}, width=60))


def _read(name: str) -> str:
    return Path(FOLDER / f"{name}.svg").read_text("utf-8")
