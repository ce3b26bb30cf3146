"""Experiments run at small scale, keep what they have measured, and show what they claim."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import phonograd
from phonograd.commands.reproduce import _in_groups
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers import experiment, result, run
from phonograd.papers.curves import lines
from phonograd.papers.experiment import load, names
from phonograd.papers.page import _section, own_pages, page
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS, NEIGHBOURS_OF_PAIRS
from tests.support.command_line import Run

ROOT = Path(__file__).parents[2]
QUICK = ("p-table8",)  # those that train nothing


@pytest.mark.parametrize("name", [name for name in names() if name not in QUICK])
@pytest.mark.long
def test_a_small_run_shows_what_the_experiment_claims(phono: Run, tmp_path: Path, name: str) -> None:
    document = phono("reproduce", name, "--small", "--out", tmp_path / "out.json", "--json").document
    assert document["rows"]
    found = result.read_result(tmp_path / "out.json")
    assert found.small
    assert all(lines(plot, found) for plot in load(name).plots)


def test_every_experiment_has_settings_of_its_kind_and_knows_its_rows() -> None:
    for name in names():
        found = load(name)
        for small in (False, True):
            _, settings = run.kind_of(name, found, small)
        assert "'bf16'" not in repr(settings), f"{name}: a small run asks for instructions that some CPUs lack"
        for claim in found.claims:
            assert claim.within is None or all(claim.figure in found.published[row] for row in claim.rows), name


def test_epsilon_says_which_users_it_is_about() -> None:
    assert NEIGHBOURS in load("m-table1").about and NEIGHBOURS in load("m-table2").about
    assert NEIGHBOURS_OF_PAIRS in load("p-table8").about


def test_the_page_has_the_results() -> None:
    folder = result.results_folder()
    assert folder == ROOT / "phonograd/papers/results"
    assert {path.stem for path in folder.glob("*.json")} <= set(names())
    assert not [path for path in folder.glob("*.json") if result.read_result(path).small]
    assert (ROOT / "docs" / "results.md").read_text("utf-8") == page(folder), (
        "run phonograd reproduce --page docs/results.md"
    )
    for place, text in own_pages(folder).items():
        assert (ROOT / "docs" / place).read_text("utf-8") == text, "run phonograd reproduce --page docs/results.md"


def test_a_small_run_that_contradicts_a_claim_fails(
    phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads((experiment.FOLDER / "p-table8.json").read_bytes())
    document["claims"][0] |= {"low": 1.0, "within": None}
    (tmp_path / "p-table8.json").write_text(json.dumps(document))
    monkeypatch.setattr(experiment, "FOLDER", tmp_path)
    small = phono("reproduce", "p-table8", "--small")
    assert small.code == 27
    assert "follows from its Table 7 by its formula; the figures above do not show it" in small.err
    full = phono("reproduce", "p-table8", "--out", tmp_path / "full.json", "--json")
    assert full.document["claims"][0]["verdict"] == "contradicts"  # measured: reported, and no error


def test_a_small_run_never_replaces_a_full_one(phono: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert phono("reproduce", "p-table8", "--small", "--out", out).code == 0
    assert phono("reproduce", "p-table8", "--out", out).code == 0
    before = out.read_bytes()
    refused = phono("reproduce", "p-table8", "--small", "--out", out)
    assert (refused.code, out.read_bytes()) == (2, before)
    assert "holds the result of a full run" in refused.err


def test_a_folder_is_of_one_run(tmp_path: Path) -> None:
    run.run("p-table8", tmp_path)
    assert run.run("p-table8", tmp_path).rows
    with pytest.raises(StateError, match="holds parts of a run with another small"):
        run.run("p-table8", tmp_path, small=True)


def test_a_result_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"weights")
    before = run.sha256_of(tmp_path / "folder")
    (tmp_path / "folder" / "file").rename(tmp_path / "folder" / "other")
    assert run.sha256_of(tmp_path / "folder") != before
    found = run.run("p-table8", tmp_path / "work")
    assert found.version == phonograd.__version__
    assert all(re.fullmatch("[0-9a-f]{40}[+]?", commit) for commit in found.commits)
    (tmp_path / "work" / "commits.json").write_text('["an earlier commit"]')
    again = run.run("p-table8", tmp_path / "work")
    assert again.commits == ("an earlier commit", *found.commits)
    result.write_result(tmp_path / "out.json", again)
    kept = result.read_result(tmp_path / "out.json")
    assert (kept.version, kept.commits, kept.inputs) == (again.version, again.commits, again.inputs)


def test_the_page_marks_a_checkout_with_changes_and_names_inputs_by_their_hash() -> None:
    found = result.read_result(ROOT / "phonograd/papers/results/p-table8.json")
    found = replace(found, commits=("a" * 40, "b" * 40 + "+"), inputs={"general-test": "c" * 64})
    last = [*_section("p-table8", load("p-table8"), {"p-table8": found})][-1]
    assert "commit aaaaaaa; commit bbbbbbb with changes that were not committed." in last
    assert "SHA-256 of general-test: cccccccc;" in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a NAME, --list or --page"),
        (["p-table9"], "experiment 'p-table9': one of "),
        (["p-table1", "--users", "u", "--out", "{}/out.json"], "needs --artifacts, --rehearsal, --general-test"),
        (["p-table8", "--users", "u", "--out", "{}/out.json"], "p-table8: no such input: users; it takes none"),
        (["p-table1", "--input", "with"], "--input: NAME=PATH expected, found 'with'"),
    ],
)
def test_wrong_usage_says_what_to_do(
    phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr("phonograd.commands.reproduce.build_on_first_use", lambda _: pytest.fail("it built the engine"))
    found = phono("reproduce", *(argument.format(tmp_path) for argument in arguments))
    assert found.code == 2
    assert message in found.err


def test_a_wide_table_is_shown_as_several() -> None:
    rows = [
        {"": "initial", "a: paper": "1", "a: ours": "2", "b: ours": "3", "c: ours": "4", "d: ours": None},
        {"": "after", "a: paper": None, "a: ours": "2", "b: ours": "3", "c: ours": "4", "d: ours": "5"},
    ]
    first, second = _in_groups(rows)
    assert [list(row) for row in first] == [["", "a: paper", "a: ours", "b: ours", "c: ours"]] * 2
    assert second == [{"": "after", "d: ours": "5"}]


def test_the_list_names_options_and_other_inputs(phono: Run) -> None:
    rows = {row["name"]: row for row in phono("reproduce", "--list", "--json").document}
    assert list(rows) == names()
    assert rows["p-table2"]["inputs"].startswith("--artifacts: ")
    assert "(optional)" in rows["p-table7"]["inputs"]
    assert "--input training-text=PATH: " in rows["j-tables"]["inputs"]
