"""Outputs that are killed while they are written: nothing of them is left once a later command has ended."""

import fcntl
import logging
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import build_host_command
from tests.support.artifacts import exported
from tests.support.phone_command import Place

log = logging.getLogger(__name__)

KILLS = int(os.environ.get("PHONOGRAD_CRASHES", "20"))
SEED = int(os.environ.get("PHONOGRAD_CRASH_SEED", "0"))


def test_what_a_dead_process_left_goes_and_what_a_living_one_writes_stays(place: Place, tmp_path: Path) -> None:
    stale, living = tmp_path / ".update.0123abcd.partial", tmp_path / ".update.89abcdef.partial"
    others = [tmp_path / name for name in (".other.0123abcd.partial", ".update.partial", ".update.0123abcdx.partial")]
    for path in (stale, living, *others):
        path.write_bytes(b"half")
    with living.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert place.train("--update", tmp_path / "update").code == 0
    assert {path for path in tmp_path.iterdir() if path.name != "update"} == {living, *others}


def killed_while_writing(line: list[str], folder: Path, chance: random.Random) -> None:
    """Run a command until it has a partial file, and a moment longer; SIGKILL."""
    with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
        before = set(folder.glob(".*.partial"))
        while process.poll() is None and set(folder.glob(".*.partial")) <= before:
            pass
        time.sleep(chance.random() / 100)
        process.kill()


@pytest.mark.long
def test_kills_while_outputs_are_written_leave_nothing(tmp_path: Path) -> None:
    """The weights are 13 MB, so that most kills come before they are complete."""
    model = LanguageModelConfig("lstm", vocabulary=50_000, embedding=32, hidden=32, layers=1)
    place = Place(
        build_host_command().path, exported(model, TrainingConfig(2, 4)), tmp_path / "user", tmp_path / "general"
    )
    place.user.write_bytes(b"w1 w2 w3 w4 w5 w6 w7\n")
    folder, chance = tmp_path / "out", random.Random(SEED)
    folder.mkdir()
    log.warning("PHONOGRAD_CRASH_SEED=%d", SEED)  # pytest shows it when the test fails
    line = place.train_line("--out", folder / "weights", "--update", folder / "update")
    left = 0
    for kills in range(1, KILLS + 1):
        killed_while_writing(line, folder, chance)
        left += any(folder.glob(".*.partial"))
        if kills % 5 == 0:
            subprocess.run(line, stdout=subprocess.DEVNULL, check=True)
            assert sorted(path.name for path in folder.iterdir()) == ["update", "weights"]
    log.info("%d kills, of which partial files were left %d times", KILLS, left)
    assert left > 0
