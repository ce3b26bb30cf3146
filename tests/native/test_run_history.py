"""A phone's own count of the rounds of dp-ftrl that it took part in."""

import json
import stat
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import PhonogradError, StateError, StorageError, TookPartError, UsageError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.training.round import Round, RoundSettings
from tests.native.limits import files_of_at_most
from tests.native.small_round import TEXT, artifacts

RUN, OTHER = "a" * 64, "b" * 64


def run_line(step: int, run: str = RUN, separation: int = 3, most: int = 4) -> str:
    told = {"run": run, "step": step, "min_separation": separation, "max_participations": most}
    return json.dumps(told)


def take_part(
    folder: Path, run: str | None, history: str | None = "history.json", update: str | None = "update"
) -> None:
    settings = RoundSettings(
        folder=artifacts().folder,
        user=TEXT,
        seed=1,
        run=run,
        run_history=history and folder / history,  # type: ignore[arg-type]
        update=update and folder / update,  # type: ignore[arg-type]
        options=BackendOptions(1),
    )
    with Round(settings) as round_:
        round_.train()


def read_history(folder: Path) -> dict[str, list[int]]:
    return json.loads((folder / "history.json").read_text())  # type: ignore[no-any-return]


def test_a_phone_rests_and_has_its_part_in_each_run(tmp_path: Path) -> None:
    """The phone counts each run by itself, whatever a server says; a step may be taken again."""
    for step in (2, 2, 5, 8, 8):
        take_part(tmp_path, run_line(step))
    assert read_history(tmp_path) == {RUN: [2, 5, 8]}
    assert stat.S_IMODE((tmp_path / "history.json").stat().st_mode) == 0o600
    for step in (1, 7, 9, 10):
        with pytest.raises(TookPartError, match=rf"step 8 of the run, and rests until step 11 .*found step {step}\b"):
            take_part(tmp_path, run_line(step))
    take_part(tmp_path, run_line(3, OTHER))
    take_part(tmp_path, run_line(11))
    assert read_history(tmp_path) == {RUN: [2, 5, 8, 11], OTHER: [3]}
    with pytest.raises(TookPartError, match=r"took part 4 times in the run, as often as it may"):
        take_part(tmp_path, run_line(100))
    take_part(tmp_path, run_line(11))  # whose update is lost: as often as its round lasts


def test_it_is_refused_before_it_trains_and_noted_before_there_is_an_update(tmp_path: Path) -> None:
    take_part(tmp_path, run_line(1))
    (tmp_path / "update").unlink()
    with pytest.raises(TookPartError):
        take_part(tmp_path, run_line(3))
    assert not (tmp_path / "update").exists()
    (tmp_path / "history.json").rename(tmp_path / "old")
    (tmp_path / "history.json").mkdir()
    with pytest.raises(PhonogradError):
        take_part(tmp_path, run_line(9))
    assert not (tmp_path / "update").exists()


def test_the_count_is_kept_when_the_update_can_not_be(tmp_path: Path) -> None:
    """A disk with room for the count alone. With an update of which a part is there, a phone has taken part."""
    with files_of_at_most(4096), pytest.raises(StorageError, match="update: cannot write"):
        take_part(tmp_path, run_line(1))
    assert read_history(tmp_path) == {RUN: [1]}
    take_part(tmp_path, run_line(1))
    assert read_history(tmp_path) == {RUN: [1]}


@pytest.mark.parametrize(
    "damaged", ["", "[]", "{", '{"a": 1}', '{"a": []}', '{"a": [2, 1]}', '{"a": [0]}', '{"a": ["1"]}']
)
def test_a_damaged_count_is_no_empty_one(tmp_path: Path, damaged: str) -> None:
    (tmp_path / "history.json").write_text(damaged)
    with pytest.raises(StateError, match=r"history\.json"):
        take_part(tmp_path, run_line(1))
    assert (tmp_path / "history.json").read_text() == damaged
    assert not (tmp_path / "update").exists()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("{}", "the SHA-256 of a run expected"),
        ("no", "not valid JSON"),
        (run_line(0), "`step`, a whole number of at least 1, expected, found 0"),
        (run_line(1, separation=0), "`min_separation`"),
        (run_line(1, most=0), "`max_participations`"),
        (run_line(1, run="A" * 64), "the SHA-256 of a run expected"),
        (json.dumps({"run": RUN, "min_separation": 1, "max_participations": 1}), "`step`.*found none"),
        (json.dumps({"run": RUN, "step": 1.5, "min_separation": 1, "max_participations": 1}), "`step`.*found 1.5"),
    ],
)
def test_what_no_server_says_is_refused(tmp_path: Path, run: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        take_part(tmp_path, run)
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`run` and `run_history` go together"):
        take_part(tmp_path, run_line(1), history=None)
    with pytest.raises(UsageError, match="`run` needs an update"):
        take_part(tmp_path, run_line(1), update=None)
    with pytest.raises(UsageError):  # one file can't be both
        take_part(tmp_path, run_line(1), update="history.json")
