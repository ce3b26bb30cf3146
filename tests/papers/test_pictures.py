"""Curves of results: their pictures beside the page, and the short table there."""

import re
from pathlib import Path

import msgspec
import pytest

from docs.pictures.diagrams import DIAGRAMS
from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers import result
from phonograd.papers.curves import Point, lines
from phonograd.papers.experiment import Experiment, Plot, load
from phonograd.papers.page import own_pages, page
from phonograd.papers.pictures import describe, picture, write_page
from phonograd.papers.result import Result

DOCS = Path(__file__).parents[2] / "docs"
LOSS = Plot("How the loss falls", "loss", band=("loss, p10", "loss, p90"))
BYTES = Plot("What it costs", "MB", logarithmic=("y",))
EXPERIMENT = Experiment(
    "Paper P, Figure 0",
    "Nothing.",
    "epsilon",
    {},
    published={"fast": {"loss": 0.5}},
    plots=(LOSS, BYTES),
    table_rounds=(5,),
)
RESULT = Result(
    experiment="p-table8",
    small=False,
    seeds=(1, 2),
    texts="none",
    settings={},
    facts={},
    rows={
        "initial": {"loss": (8.0, 10.0), "loss, p10": (7.0, 7.0), "loss, p90": (11.0, 11.0)},
        "fast, round 5": {"loss": (4.0, 4.0), "loss, p10": (3.0, 3.0), "loss, p90": (5.0, 5.0), "MB": (2.0, 2.0)},
        "fast, round 10": {"loss": (1.0, 2.0), "loss, p10": (1.0, 1.0), "loss, p90": (2.0, 2.0), "MB": (4.0, 4.0)},
        "fast": {"loss": (1.0, 2.0), "rounds to 3": (8.0, 8.0)},
        "slow, round 5": {"loss": (6.0, 6.0), "loss, p10": (5.0, 5.0), "loss, p90": (7.0, 7.0)},
        "slow": {"loss": (6.0, 6.0)},
    },
    version="0",
)


def test_a_line_has_the_means_over_seeds_from_the_first_model_on() -> None:
    assert lines(LOSS, RESULT) == {
        "fast": [Point(0, 9, (7, 11)), Point(5, 4, (3, 5)), Point(10, 1.5, (1, 2))],
        "slow": [Point(0, 9, (7, 11)), Point(5, 6, (5, 7))],
    }


def test_a_line_has_the_rows_that_know_its_figure() -> None:
    assert lines(BYTES, RESULT) == {"fast": [Point(5, 2, None), Point(10, 4, None)]}


def test_a_plot_of_no_figure_is_named() -> None:
    with pytest.raises(ArtifactsError, match="'typo': rows 'NAME, round N' with 'los' expected"):
        lines(Plot("typo", "los"), RESULT)


def test_a_picture_has_every_curve_and_is_always_the_same() -> None:
    svg = picture(EXPERIMENT, RESULT)
    assert svg == picture(EXPERIMENT, RESULT)
    labels = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    for label in (LOSS.title, BYTES.title, "loss", "round", "MB", "fast", "slow"):
        assert label in labels
    assert labels.count("fast") == 1
    assert "How the loss falls: fast: 0 9, 5 4, 10 1.5\n" in svg
    assert not re.search(r"20\d\d-\d\d|dc:date", svg)
    less = msgspec.structs.replace(RESULT, rows={row: RESULT.rows[row] for row in ("fast, round 5", "fast, round 10")})
    assert picture(EXPERIMENT, less) != svg


def test_the_page_shows_the_picture_and_few_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.papers.page.load", lambda _: EXPERIMENT)
    monkeypatch.setattr("phonograd.papers.pictures.load", lambda _: EXPERIMENT)
    results = tmp_path / "results"
    results.mkdir()
    result.write_result(results / "p-table8.json", RESULT)
    write_page(tmp_path / "page.md", results)
    text = (tmp_path / "page.md").read_text("utf-8")
    assert "![How the loss falls. What it costs](pictures/p-table8.svg)" in text
    assert (tmp_path / "pictures/p-table8.svg").read_text("utf-8") == picture(EXPERIMENT, RESULT)
    section = text.split("## Paper P, Figure 0")[1]
    assert [line for line in section.splitlines() if line.startswith("| ")] == [
        "|  | loss | MB | rounds to 3 |",
        "| initial | 9 (8–10) |  |  |",
        "| fast, round 5 | 4 | 2 |  |",
        "| fast: paper | 0.5 |  |  |",
        "| fast | 1.5 (1–2) |  | 8 |",
        "| slow, round 5 | 6 |  |  |",
        "| slow | 6 |  |  |",
    ]


def test_the_pictures_are_those_of_the_results() -> None:
    """Compare figures, not bytes, which another version of matplotlib may change."""
    folder = result.results_folder()
    assert folder is not None
    pages = [page(folder), *own_pages(folder).values()]
    shown = {name for text in pages for name in re.findall(r"\(pictures/([^)]+)\.svg\)", text)}
    assert shown == {path.stem for path in (DOCS / "pictures").glob("*.svg")} - {*DIAGRAMS, "codecs"}
    for name in shown:
        path = DOCS / "pictures" / f"{name}.svg"
        words = describe(load(name), result.read_result(folder / f"{name}.json"))
        assert f"<dc:description>{words}</dc:description>" in path.read_text("utf-8"), (
            "phonograd reproduce --page docs/results.md"
        )
        assert path.stat().st_size <= 100_000
        assert ' width="345.6pt"' in path.read_text("utf-8")  # its letters keep their size on a phone
