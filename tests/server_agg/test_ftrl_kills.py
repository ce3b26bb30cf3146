"""kill -9 at 200 random moments while a server closes rounds of dp-ftrl: one released noise a round."""

import logging
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from tests.server_agg.test_ftrl_serving import FTRL, give
from tests.server_agg.test_rounds import opened
from tests.server_agg.workshop import Clock, Workshop, settings_with

pytestmark = pytest.mark.long

log = logging.getLogger(__name__)
KILLS, KILLS_A_CLOSING = 80, 8
Life = Callable[[Path, float], tuple[str, float]]


def released(state: Path) -> dict[str, str]:
    """The hashes of what a closing leaves: models and buffers, and that they are what their names say."""
    found = {}
    for folder in ("models", "buffers"):
        for path in (state / folder).iterdir():
            assert path.stem == sha256_of_file(path), path
            found[f"{folder}/{path.name}"] = path.stem
    return found


def test_one_noise_a_round(workshop: Workshop, tmp_path: Path) -> None:
    """Two noises of one sum could be averaged. Each closing is that of a copy of one state folder that is killed often.

    A calm one tells what all must release: the round's key is in the folder from its beginning.
    """
    clock, seed = Clock(), random.randrange(1 << 32)
    log.info("seed %d", seed)
    moments, before, calm = random.Random(seed), tmp_path / "before", tmp_path / "calm"
    with opened(workshop, before, settings_with(**FTRL), clock) as coordinator:
        for phone in ("phone1", "phone2"):
            give(workshop, coordinator, phone)
        clock.now += 101
        coordinator.tick()
        give(workshop, coordinator, "phone3")
    number = coordinator.current.round
    line = [sys.executable, "-m", "tests.server_agg.closing_lives", str(workshop.artifacts.folder)]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as lives:
        assert lives.stdin is not None
        assert lives.stdout is not None

        def life(state: Path, seconds: float) -> tuple[str, float]:
            lives.stdin.write(f"{state} {clock.now + 101} {seconds}\n")  # type: ignore[union-attr]
            lives.stdin.flush()  # type: ignore[union-attr]
            end, lasted = lives.stdout.readline().split()  # type: ignore[union-attr]
            return end, float(lasted)

        shutil.copytree(before, calm)
        end, usual = life(calm, 0)
        assert end == "0"
        expected = released(calm)
        assert len(expected) == len(released(before)) + 1  # a model more, and other buffers in place of the last ones
        killed = closings = 0
        while killed < KILLS:
            state = tmp_path / f"closing-{closings}"
            shutil.copytree(before, state)
            ends = [life(state, max(0.001, moments.random() * usual))[0] for _ in range(KILLS_A_CLOSING)]
            killed += ends.count("killed")
            assert set(ends) <= {"killed", "0"}
            assert life(state, 0)[0] == "0"
            assert released(state) == expected, (seed, closings)
            assert [path.name for path in (state / "noise").iterdir()] == [str(number + 1)]
            shutil.rmtree(state)
            closings += 1
        lives.stdin.close()
    log.info("%d kills in %d closings", killed, closings)
    assert closings > KILLS // KILLS_A_CLOSING - 1
