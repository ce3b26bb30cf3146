"""Training that shares the phone: rests between steps (`--duty`), and a lower priority (`--nice`)."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.phone_command import STEPS, Place, outcome_of, outputs, read_outputs, text_of, until_step

# Of the wall time: a step of a millisecond is followed by a rest of two minutes.
ALMOST_NEVER = 1e-5


def test_rests_are_reported_and_change_no_bit(place: Place, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(text_of(3, 120))
    line = place.line("train", place.artifacts.folder, "--user", short, "--seed", 0, *outputs(tmp_path))
    busy = outcome_of(line)
    expected = read_outputs(tmp_path)
    assert (busy.only("start")["duty"], busy.only("report")["rest_seconds"]) == (1, 0)
    found = outcome_of([*line, "--duty", "0.02"])
    assert read_outputs(tmp_path) == expected
    report = found.only("report")
    assert found.only("start")["duty"] == report["duty"] == 0.02
    steps = report["step_seconds"]
    assert report["rest_seconds"] >= 0.999 * 49 * sum(steps[:-1])
    assert sum(steps) <= report["seconds"] < report["rest_seconds"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_ends_a_rest(place: Place, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """The epoch is saved, and resumed with another duty to the bits of one without rests."""
    (tmp_path / "whole").mkdir()
    assert place.train(*outputs(tmp_path / "whole")).code == 0
    line = place.train_line("--state", tmp_path / "state", *outputs(tmp_path))
    stopped = until_step([*line, "--duty", str(ALMOST_NEVER)], 1, number, after=0.1)
    assert (stopped.code, stopped.only("interrupted")["step"]) == (code, 1)
    resumed = outcome_of([*line, "--duty", "0.9"])
    assert (resumed.only("start")["resumed_at"], resumed.only("report")["steps"]) == (1, STEPS)
    assert read_outputs(tmp_path) == read_outputs(tmp_path / "whole")


@pytest.mark.parametrize("options", [("--save-every", 1), ()])
def test_a_state_is_saved_before_a_rest(place: Place, tmp_path: Path, options: tuple[object, ...]) -> None:
    """A long rest is reason enough."""
    line = place.train_line("--state", tmp_path / "state", "--duty", ALMOST_NEVER, *options)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while (event := process.stdout.readline()) and "saved" not in event and '"step":2' not in event:
            pass
        process.kill()
    assert place.train("--state", tmp_path / "state").only("start")["resumed_at"] == 1


def nice_values(process: int) -> set[int]:
    """Nice values of all threads of a process."""
    lines = [task.joinpath("stat").read_text() for task in Path(f"/proc/{process}/task").iterdir()]
    return {int(line.rpartition(")")[2].split()[16]) for line in lines}


def test_nice_lowers_the_priority_of_all_threads(place: Place) -> None:
    lower = min(19, os.nice(0) + 7)  # these tests may run at a low priority themselves
    line = place.train_line("--nice", lower, "--duty", ALMOST_NEVER, "--threads", 2)
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert f'"nice":{lower}' in process.stdout.readline()
        found = nice_values(process.pid)
        process.kill()
    assert found == {lower}


def test_nice_never_raises_a_priority(place: Place) -> None:
    nice = shutil.which("nice")
    assert nice is not None
    lower = min(19, os.nice(0) + 9)
    line = [nice, "-n", "9", *place.train_line("--nice", max(0, lower - 9))]
    assert outcome_of(line).only("report")["nice"] == lower
    assert place.train().only("report")["nice"] == os.nice(0)
