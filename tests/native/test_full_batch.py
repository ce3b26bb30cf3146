"""`phonograd-phone train --steps 1`: one step with the gradient of the whole text; tests/golden has its numbers."""

import signal
from pathlib import Path

import pytest

from phonograd.device_runtime.update.update_file import UpdateFile
from tests.reference.codecs import read_parts
from tests.support.phone_command import STEPS, Place, outputs, read_outputs, until_step

SAMPLED = ("--output-sample", 60, "--sample-seed", 11)


@pytest.mark.parametrize(("options", "windows", "steps"), [((), 1, None), (("--steps", 1), STEPS, 1)])
def test_an_update_says_whether_it_is_one_step(
    place: Place, tmp_path: Path, options: tuple[object, ...], windows: int, steps: int | None
) -> None:
    report = place.train(*options, *outputs(tmp_path)).only("report")
    assert (report["steps"], report["windows_per_step"]) == (STEPS, windows)
    with UpdateFile(tmp_path / "update") as update:
        assert update.info.steps == steps
    assert read_parts(tmp_path / "update")[1].get("steps") == (steps and str(steps))


@pytest.mark.parametrize("options", [(), SAMPLED])
def test_neither_threads_nor_kills_change_a_bit(place: Place, tmp_path: Path, options: tuple[object, ...]) -> None:
    (tmp_path / "undisturbed").mkdir()
    once = ("--steps", 1, *options)
    assert place.train(*once, *outputs(tmp_path / "undisturbed")).code == 0
    saved = (*once, "--state", tmp_path / "state", "--save-every", 3, *outputs(tmp_path))
    assert until_step(place.train_line(*saved), 8, signal.SIGKILL).code == -signal.SIGKILL
    resumed = place.train(*saved, "--threads", 3)
    assert resumed.only("start")["resumed_at"] > 0
    assert read_outputs(tmp_path) == read_outputs(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("first", "then", "differing"),
    [((), ("--steps", 1), "1 expected, found none"), (("--steps", 1), (), "none expected, found 1")],
)
def test_a_state_of_an_epoch_is_not_one_of_a_step(
    place: Place, tmp_path: Path, first: tuple[object, ...], then: tuple[object, ...], differing: str
) -> None:
    saved = ("--state", tmp_path / "state", "--save-every", 3)
    assert until_step(place.train_line(*first, *saved), 8, signal.SIGKILL).code == -signal.SIGKILL
    refused = place.train(*then, *saved)
    assert refused.code == 17
    assert f"differs in steps ({differing})" in refused.err
