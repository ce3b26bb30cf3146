"""`make bench`: what it collects, and when its comparison fails. Only a long test runs its benchmarks, once each."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phonograd.android_harness.errors import RegressionError, ReportError
from phonograd.bench.environment import this_environment
from phonograd.bench.wall_time.comparison import SavedRun, ratios_of, require_no_slower, require_replaceable
from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.update.codecs import CODECS

pytest_plugins = "pytester"

ROOT = Path(__file__).parents[2]
FOLDER = "phonograd/bench/wall_time"
OPTIONS = "phonograd.bench.wall_time.conftest"
NAME = "test_nothing.py::test_nothing"


def run_pytest(*arguments: str) -> str:
    """What it prints. It must succeed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    command = [sys.executable, "-m", "pytest", FOLDER, *arguments]
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_part_of_a_round_is_collected() -> None:
    collected = re.findall(r"::bench_(\w+)\[2x650-V30000-B10-T20-?(.*)\]", run_pytest("--collect-only"))
    assert set(collected) == {
        *(("step", name) for name in ("native", "native bf16", "native sampled", "ort", "torch lean")),
        ("epoch", ""),
        *(("suggestion", name) for name in ("float32", "int8")),
        *((way, codec) for way in ("encode", "decode") for codec in CODECS),
        ("fold", "rows-f32-4 phones"),
        ("ingest", "rows-f32"),
    }


@pytest.mark.long
def test_each_benchmark_runs() -> None:
    assert re.search(r"\b2[0-9] passed", run_pytest("--preset", "tiny", "--benchmark-disable"))


def document(medians: dict[str, float], cpu: str | None = None) -> dict[str, Any]:
    environment = msgspec.to_builtins(this_environment())
    benchmarks = [{"fullname": name, "stats": {"median": seconds}} for name, seconds in medians.items()]
    return {
        "machine_info": {"environment": environment | ({"cpu": cpu} if cpu else {})},
        "benchmarks": benchmarks,
    }


def run_of(medians: dict[str, float]) -> SavedRun:
    return msgspec.convert(document(medians), SavedRun)


SAVED = run_of({"a": 1.0, "b": 2.0})


def test_a_run_may_be_slower_up_to_the_limit() -> None:
    require_no_slower(ratios_of(SAVED, run_of({"a": 1.19, "b": 0.1, "new": 9.0})), 0.2)
    with pytest.raises(RegressionError, match=r"by more than 20 %: b takes 1\.25 times as long$"):
        require_no_slower(ratios_of(SAVED, run_of({"a": 1.19, "b": 2.5})), 0.2)


def test_a_benchmark_that_was_skipped_is_missed() -> None:
    with pytest.raises(ReportError, match="the saved run has b, which was skipped now"):
        ratios_of(SAVED, run_of({"a": 1.0}))


def test_a_saved_run_replaces_saved_runs_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    require_replaceable(path)
    path.write_text(json.dumps(document({"a": 1.0})))
    require_replaceable(path)
    path.write_text(json.dumps({"machine_info": {}}))
    with pytest.raises(StorageError, match="not replaced"):
        require_replaceable(path)
    with pytest.raises(StorageError, match="none: cannot write"):
        require_replaceable(tmp_path / "none/run.json")


Run = Callable[..., pytest.RunResult]
Compare = Callable[[str], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a benchmark of nothing with options of `make bench`."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(test_nothing="def test_nothing(benchmark): benchmark.pedantic(int)")
    return lambda *options: pytester.runpytest_inprocess(
        "-p", OPTIONS, "-p", "no:schemathesis", *options, no_reraise_ctrlc=True
    )


@pytest.fixture
def compare(run: Run, pytester: pytest.Pytester) -> Compare:
    """Compare it with a file of this content."""

    def of(content: str) -> pytest.RunResult:
        (pytester.path / "old.json").write_text(content)
        return run("--compare", "old.json", "--save", "now.json")

    return of


@pytest.mark.parametrize(("saved_seconds", "code"), [(1e-30, 24), (1e30, 0)])
def test_the_exit_code_says_whether_it_is_slower(saved_seconds: float, code: int, compare: Compare) -> None:
    """Than seconds that nothing can take, and than seconds that nothing takes."""
    result = compare(json.dumps(document({NAME: saved_seconds})))
    assert result.ret == code
    assert (f"by more than 20 %: {NAME} takes" in result.stderr.str()) == (code == 24)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "old.json: *; expected a run that `make bench SAVE=FILE` saved"),
        (json.dumps({"benchmarks": []}), "old.json: *; expected a run that `make bench SAVE=FILE` saved"),
        (json.dumps(document({NAME: 1e30}, "another CPU")), "the saved run is of another CPU *, this machine is *"),
        (json.dumps(document({"x": 1.0, "y": 1.0})), "the saved run has x and 1 more, which this run lacks*"),
    ],
)
def test_another_file_is_refused_before_anything_is_measured(content: str, message: str, compare: Compare) -> None:
    refused = compare(content)
    assert refused.ret == 25
    assert "passed" not in refused.stdout.str()
    assert re.search(message.replace("*", ".*"), refused.stdout.str() + refused.stderr.str())


def test_a_run_that_broke_off_replaces_no_saved_run(run: Run, pytester: pytest.Pytester) -> None:
    before = json.dumps(document({NAME: 1.0}))
    (pytester.path / "now.json").write_text(before)
    pytester.makepyfile(test_stopped="def test_stopped(): raise KeyboardInterrupt")
    assert run("--save", "now.json").ret == pytest.ExitCode.INTERRUPTED
    assert (pytester.path / "now.json").read_text() == before
    (pytester.path / "test_stopped.py").unlink()
    assert run("--save", "now.json").ret == 0
    assert (pytester.path / "now.json").read_text() != before


def test_a_benchmark_that_the_saved_run_lacks_is_named(compare: Compare, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_new="def test_new(benchmark): benchmark.pedantic(int)")
    result = compare(json.dumps(document({NAME: 1e30})))
    result.stdout.fnmatch_lines("*not compared, the saved run lacks it: test_new.py::test_new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--save", "a.json", "--compare", "a.json"), "SAVE and COMPARE are both a.json*use two files"),
        (("--max-slowdown=10%",), "MAX_SLOWDOWN: expected COMPARE=FILE*"),
        (("--max-slowdown=-5%", "--compare", "a.json"), "MAX_SLOWDOWN is '-5%', expected a share*"),
    ],
)
def test_what_can_not_be_meant_is_refused(options: tuple[str, ...], message: str, run: Run) -> None:
    result = run(*options)
    assert result.ret == 2
    assert re.search(message.replace("*", ".*"), result.stdout.str() + result.stderr.str())
