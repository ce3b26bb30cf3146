"""kill -9 of a server that closes a private round, over PostgreSQL and S3; another one goes on: one noise a round.

PHONOGRAD_CRASHES: how many times (4); PHONOGRAD_CRASH_SEED: other moments (0).
"""

import contextlib
import logging
import os
import random
import select
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.storage.tables import Round
from tests.cluster.test_private_replicas import FTRL, models, update_of
from tests.cluster.test_replicas import rounds, send_without_closing
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.dying_server import ending_when_all_came, lives_of
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.waiting import until

pytestmark = pytest.mark.cluster
log = logging.getLogger(__name__)

CRASHES = int(os.environ.get("PHONOGRAD_CRASHES", "4"))
SEED = int(os.environ.get("PHONOGRAD_CRASH_SEED", "0"))
# A server's start takes some twenty steps, the round's end that it begins with some sixty more.
LONGEST_LIFE_STEPS = 90


def test_a_server_killed_amid_a_closing_leaves_one_noise_to_the_one_that_takes_over(
    workshop: Workshop, tmp_path: Path, database: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveRound, "find_ending", ending_when_all_came)
    run = {"planned_rounds": 10_000, "min_separation": 1, "max_participations": 10_000, "deadline_seconds": 1e9}
    changes = FTRL | run | {"ledger": database, "store": bucket, "clients_per_round": 1}
    chance, when = random.Random(SEED), Counter[str]()
    with (
        open_coordinator(workshop, tmp_path / "second", settings_with(**changes)) as second,
        (tmp_path / "first.log").open("w") as errors,
        lives_of(workshop.artifacts, tmp_path / "first", changes, stderr=errors) as lives,
    ):
        for number in range(1, CRASHES + 1):
            send_without_closing(second, update_of(workshop, second, number), "phone1")
            die(lives, chance.randint(1, LONGEST_LIFE_STEPS), second, number)
            row, left = rounds(second.ledger)[number - 1], set(second.folder.store.names("models"))
            published = {f"{model.sha256}.safetensors" for model in models(second)}
            when[moment(row, bool(left - published))] += 1
            second.tick()
            assert [round_.ending for round_ in rounds(second.ledger)] == ["deadline"] * number + [None]
            assert left <= {f"{model.sha256}.safetensors" for model in models(second)}, "two noises of one round"
        names = {part: second.folder.store.names(part) for part in ("noise", "buffers", "updates")}
    log.warning("%d kills: %s", CRASHES, dict(when))
    assert (len(names["noise"]), len(names["buffers"]), names["updates"]) == (1, 1, [])
    assert when["while it closed"] + when["model stored"] > 0


def die(lives: "subprocess.Popen[str]", step: int, second: Coordinator, number: int) -> None:
    """A life of the other server, to its end at that step, or once it has closed the round."""
    assert lives.stdin is not None
    assert lives.stdout is not None
    lives.stdin.write(f"{step}\n")
    lives.stdin.flush()
    with contextlib.suppress(ProcessLookupError):  # it is dead already
        death = os.pidfd_open(int(lives.stdout.readline()))
        until(
            lambda: select.select([death], [], [], 0)[0] or rounds(second.ledger)[number - 1].closed_at is not None,
            "the end of a life",
        )
        signal.pidfd_send_signal(death, signal.SIGKILL)
    assert lives.stdout.readline().strip() == "dead"


def moment(row: Round, stored: bool) -> str:
    if row.closed_at is not None:
        return "it had closed it"
    if row.closing_at is None:
        return "before it closed"
    return "model stored" if stored else "while it closed"
