import json
import re
from pathlib import Path

import pytest

from phonograd.bench import environment
from phonograd.bench.environment import this_commit, this_environment
from phonograd.bench.results import FOLDER, PAGE, load_results, render, result_of, round_floats, save_result
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.errors import ArtifactsError


def test_the_committed_page_is_what_the_committed_results_give() -> None:
    """The page has every kind of result, of several CPUs, and the last figures of former contestants."""
    assert PAGE.read_text("utf-8") == render(load_results(FOLDER))


@pytest.mark.parametrize(
    ("cpuinfo", "maker", "model"),
    [
        ("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nmodel name : X\nstepping : 8", "Intel",
         "family 6, model 143, stepping 8"),
        ("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nstepping : 1", "AMD",
         "family 25, model 17, stepping 1"),
        ("CPU implementer : 0x41\nCPU part : 0xd4f", "ARM", "part 0xd4f"),
        ("CPU implementer : 0x99", "0x99", ""),
        ("nothing : 1", "", ""),
    ],
)  # fmt: skip
def test_a_result_has_its_cpus_maker_and_model(cpuinfo: str, maker: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    found = this_environment(tmp_path / "cpuinfo")
    assert (found.maker, found.model) == (maker, model)
    assert {"maker", "model"} <= result_of("epoch", 1)["environment"].keys()


def test_figures_are_kept_short() -> None:
    assert round_floats({"a": 0.123456789, "b": [0.123456789, 2.0], "c": ["x", 7], "d": [], "e": 1 << 40}) == {
        "a": 0.12346, "b": [0.123, 2.0], "c": ["x", 7], "d": [], "e": 1 << 40,
    }  # fmt: skip
    with pytest.raises(ValueError, match="finite"):
        round_floats({"a": float("nan")})


def test_results_are_saved_and_made_a_page_by_kind_then_name(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    committed = load_results(FOLDER)
    for name in ("z.json", "a.json"):
        save_result(folder / name, committed["epoch.json"], "phonograd bench epoch")
    save_result(folder / "kernels.json", committed["kernels.json"], "phonograd bench kernels")
    assert list(load_results(folder)) == ["a.json", "z.json", "kernels.json"]
    assert run(phonograd, ["bench", "results", "--results", str(folder), "--json"]) == 0
    assert (tmp_path / "RESULTS.md").read_text("utf-8") == render(load_results(folder))


@pytest.mark.parametrize(
    ("changed", "shown"), [("", "commit 0123456)."), (" M a.py", "commit 0123456+, with changes).")]
)
def test_a_result_has_its_day_and_commit(
    changed: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"rev-parse": "0123456789", "status": changed}
    monkeypatch.setattr("shutil.which", lambda _: "git")
    monkeypatch.setattr(environment, "_git", lambda what, *_: answers[what])
    save_result(tmp_path / "kernels.json", load_results(FOLDER)["kernels.json"], "make bench-kernels")
    assert re.search(
        rf"`results/kernels.json`, measured on \d{{4}}-\d\d-\d\d, {re.escape(shown)}\n", render(load_results(tmp_path))
    )
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert this_commit() == ""


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"kind": "poem"}))
    with pytest.raises(
        ArtifactsError,
        match="kind epoch, parity, .*, aggregate, masked, ingest, capacity, simulate, former expected, found 'poem'",
    ):
        load_results(tmp_path)
