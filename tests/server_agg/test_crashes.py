"""kill -9, over and over, while phones upload: nothing acknowledged is lost, nothing counts twice, the same models.

PHONOGRAD_CRASHES: how many times (20); PHONOGRAD_CRASH_SEED: another choice of moments and of ways to send (0). Each
run of three rounds has the next of the strategies below, so a thousand crashes meet them all several times.
"""

import contextlib
import logging
import os
import random
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import ServerUnreachableError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.server_client import Connection, download_model, upload_update
from phonograd.server_agg.report.document import BYTES, phones_of, report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.storage import noise_keys
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.dying_server import ending_when_all_came, lives_of
from tests.server_agg.faults import adds_up
from tests.server_agg.http_uploads import headers_of
from tests.server_agg.relay import Relay, relay_to
from tests.server_agg.slow_models import free_work
from tests.server_agg.tus_phone import TusPhone
from tests.server_agg.workshop import Workshop, client_of, settings_with
from tests.support.ports import reserved_port
from tests.support.waiting import until

log = logging.getLogger(__name__)

CRASHES = int(os.environ.get("PHONOGRAD_CRASHES", "20"))
SEED = int(os.environ.get("PHONOGRAD_CRASH_SEED", "0"))
KILLS_A_RUN = 7
ROUNDS, PHONES = 3, 3
NAMES = [f"phone{phone}" for phone in range(PHONES)]
STRATEGIES: tuple[dict[str, object], ...] = (
    {"strategy": "fedavg", "publish": "top-rows", "publish_bits": 1},
    {"strategy": "dp-ftrl", "min_separation": 1, "deadline_seconds": 1e6, "noise_multiplier": 8.0, "sampling": 1.0},
    {"strategy": "dp-fedavg", "sampling": 1.0, "population": PHONES, "deadline_seconds": 1e6, "noise_multiplier": 8.0},
    {"strategy": "fedatt", "server_optimizer": "momentum"},
    {"strategy": "median"},
    {"strategy": "fedavg"},
    {"strategy": "fedavg", "server_optimizer": "adam"},
    {"strategy": "trimmed-mean", "trim_share": 0.4},
    {"strategy": "multi-krum", "krum_byzantine": 0, "krum_selected": 2},
    {"strategy": "norm-bound", "norm_bound": 0.5},
    {"strategy": "transfer", "publish": "top-rows"},
)
# An update takes some fifteen steps, a round's end some twenty: a life gets from none to a few of them done.
LONGEST_LIFE_STEPS = 40
FORBEARANCE = RetryPolicy(attempts=1000, first_wait_seconds=0.01, longest_wait_seconds=0.02)

# What a phone sends in each round: updates[round][phone].
Updates = list[list[Path]]


def calm_run(workshop: Workshop, state: Path, changes: dict[str, object]) -> tuple[Updates, list[str]]:
    """The updates of all rounds, and the models that they make where nothing goes wrong."""
    enrol(workshop, state, changes)
    updates: Updates = []
    models = []
    with open_coordinator(workshop, state, settings_with(**changes), slow_models=free_work()) as coordinator:
        for number in range(1, ROUNDS + 1):
            base = coordinator.folder.model(coordinator.current.base_sha256)
            codecs = ("full-f32", "rows-f32", "full-f32")
            updates.append(
                [
                    workshop.update(10 * number + phone, number, 100 + phone, codecs[phone], base)
                    for phone in range(PHONES)
                ]
            )
            for phone, update in enumerate(updates[-1]):
                send(coordinator, update, f"phone{phone}")
            until(lambda number=number: coordinator.current.round > number, "the next round")  # type: ignore[misc]
            models.append(coordinator.current.base_sha256)
    return updates, models


def enrol(workshop: Workshop, state: Path, changes: dict[str, object]) -> dict[str, str | None]:
    """Each phone's token, where the strategy asks for some; then the first round is drawn when the server starts."""
    if not settings_with(**changes).strategy.private:
        return dict.fromkeys(NAMES)
    with open_coordinator(workshop, state, settings_with(**changes)) as coordinator:
        registry = PhoneRegistry(coordinator.ledger)
        tokens: dict[str, str | None] = {name: registry.add(name, "phone", "never", "test").token for name in NAMES}
        coordinator.tick()
        return tokens


@dataclass
class Reaper:
    """Lets one life of the server follow the other, each killed at random, until `kills` are done; then one lives.

    process: a dying_server. Whoever stops it says so on its stdin, as end of file: whatever is being born, living or
    dying there is then ended by the process whose child it is, and `run` reads to the end.
    """

    process: "subprocess.Popen[str]"
    chance: random.Random
    kills: int
    done: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _speaking: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        while self._live():
            self.done += 1

    def stop(self) -> None:
        assert self.process.stdin is not None
        with self._speaking:
            self._over.set()
            self.process.stdin.close()

    def _live(self) -> bool:
        """One life, to its end; False where `stop` was it."""
        last = self.done >= self.kills
        by_time = last or self.chance.random() < 0.25
        step = 0 if by_time else self.chance.randint(1, LONGEST_LIFE_STEPS)
        if not self._say(f"{step}\n"):
            return False
        child = int(self._hear())
        if by_time and not self._over.wait(None if last else self.chance.uniform(0.02, 0.4)):
            os.kill(child, signal.SIGKILL)
        return self._hear() == "dead" and not self._over.is_set()

    def _say(self, line: str) -> bool:
        assert self.process.stdin is not None
        with self._speaking:
            if not self._over.is_set():
                self.process.stdin.write(line)
                self.process.stdin.flush()
            return not self._over.is_set()

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def again_until_answered(send_once: Callable[[], object]) -> None:
    def is_answered() -> bool:
        try:
            send_once()
        except (ServerUnreachableError, httpx.TransportError):
            return False
        return True

    until(is_answered, "an answer of the server")


def come_again(answer: httpx.Response) -> httpx.Response:
    """The answer, unless the round is closing: then it counts as none."""
    if answer.status_code == 503:
        raise ServerUnreachableError(answer.text)
    return answer


def bearer(server: Connection) -> dict[str, str]:
    return {} if server.token is None else {"Authorization": f"Bearer {server.token}"}


def fetch(server: Connection, path: Path, phone: str) -> None:
    again_until_answered(lambda: download_model(server, path, phone=phone, retry=RetryPolicy(attempts=1)))


def with_our_client(server: Connection, update: Path, phone: str) -> None:
    again_until_answered(lambda: upload_update(server, update, phone, retry=FORBEARANCE))


def in_pieces(server: Connection, update: Path, phone: str) -> None:
    """Send over tus, a thousand bytes a request; go on wherever it broke off."""

    def send_once() -> None:
        with client_of(server.url, bearer(server)) as http:
            tus = TusPhone(http, phone, update.read_bytes())
            answer = come_again(tus.send(1000))
            assert answer.is_success, answer.text
            if tus.outcome().json()["state"] == "receiving":  # whole before a crash, announced again after it
                assert come_again(tus.patch(len(tus.data), b"")).status_code == 204
            assert tus.outcome().json()["state"] in ("accepted", "repeated")

    again_until_answered(send_once)


def in_one_request(server: Connection, update: Path, phone: str) -> None:
    """Send all with the announcement, then what a crash cut off or left undecided."""
    data = update.read_bytes()

    def send_once() -> None:
        with client_of(server.url, bearer(server)) as http:
            created = come_again(http.post("/v1/uploads", content=data, headers=headers_of(data, phone)))
            assert created.status_code == 201, created.text
            tus = TusPhone(http, phone, data, created.headers["Location"])
            if tus.outcome().json()["state"] == "receiving":
                offset = int(created.headers["Upload-Offset"])
                assert come_again(tus.patch(offset, data[offset:])).status_code == 204

    again_until_answered(send_once)


WAYS = (with_our_client, in_pieces, in_one_request)


@contextlib.contextmanager
def reaped_server(
    workshop: Workshop, state: Path, changes: dict[str, object], chance: random.Random, kills: int
) -> Iterator[tuple[Reaper, int]]:
    with (
        reserved_port() as port,
        (state.parent / f"{state.name}.log").open("w") as log,
        lives_of(workshop.artifacts, state, changes, port, stderr=log) as process,
    ):
        reaper = Reaper(process, chance, kills)
        thread = threading.Thread(target=reaper.run)
        thread.start()
        try:
            yield reaper, port
        finally:
            reaper.stop()
            thread.join()


def check_ledger(state: Path, updates: Updates) -> None:
    with contextlib.closing(sqlite3.connect(state / "ledger.sqlite")) as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        accepted = ledger.execute("SELECT round, phone, sha256 FROM updates WHERE state = 'accepted'").fetchall()
    expected = [
        (number, f"phone{phone}", sha256_of_file(update))
        for number, sent in enumerate(updates, 1)
        for phone, update in enumerate(sent)
    ]
    assert sorted(accepted) == expected


def results_of(state: Path) -> list[str]:
    """The models of the closed rounds."""
    with contextlib.closing(sqlite3.connect(state / "ledger.sqlite")) as ledger:
        closed = ledger.execute("SELECT result_sha256 FROM rounds WHERE closed_at IS NOT NULL").fetchall()
    return [sha256 for (sha256,) in closed]


def check_bytes(coordinator: Coordinator, updates: Updates, wire: Relay) -> None:
    """Every byte is counted once: what the ledger knows of a crash adds up, and is no more than the wire carried."""
    coordinator.ledger.flush()
    report = document_of(report_of(coordinator.ledger))
    for entry in report["rounds"]:
        phones = [document_of(phone) for phone in phones_of(coordinator.ledger, entry["round"])]
        assert min(part[name] for part in (entry, *phones) for name in BYTES) >= 0, entry
        assert [sum(phone[name] for phone in phones) for name in BYTES] == [entry[name] for name in BYTES]
        for part in (entry, *phones):
            assert adds_up(part)
            assert part["model_bytes"] <= part["down_body_bytes"]
    sizes = [sum(path.stat().st_size for path in sent) for sent in updates]
    assert [entry["useful_bytes"] for entry in report["rounds"]] == [*sizes, 0]
    totals = report["totals"]
    assert sum(sizes) <= totals["up_body_bytes"] <= totals["up_body_bytes"] + totals["up_header_bytes"] <= wire.up
    assert totals["model_bytes"] <= wire.connections * report["rounds"][0]["base_bytes"]


@pytest.mark.long
def test_crashes_at_random_lose_nothing_and_count_nothing_twice(
    make_workshop: Callable[..., Workshop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise_keys, "secrets", SimpleNamespace(token_bytes=bytes))  # as in dying_server
    monkeypatch.setattr(LiveRound, "find_ending", ending_when_all_came)
    workshop = make_workshop()
    chance = random.Random(SEED)
    killed = runs = 0
    log.warning("PHONOGRAD_CRASH_SEED=%d", SEED)  # pytest shows it when the test fails
    while killed < CRASHES:
        changes = STRATEGIES[runs % len(STRATEGIES)] | {"clients_per_round": PHONES, "retry_seconds": 0.01}
        updates, models = calm_run(workshop, tmp_path / f"calm{runs}", changes)
        state = tmp_path / f"run{runs}"
        tokens = enrol(workshop, state, changes)
        with (
            reaped_server(workshop, state, changes, chance, min(CRASHES - killed, KILLS_A_RUN)) as (reaper, port),
            relay_to(port) as (wire, url),
        ):
            asking = [Connection(url, tokens[name]) for name in NAMES]
            for number, sent in enumerate(updates, 1):
                with ThreadPoolExecutor(PHONES) as phones:
                    ways = chance.sample(WAYS, PHONES)
                    list(phones.map(fetch, asking, [tmp_path / name for name in NAMES], NAMES))
                    list(phones.map(lambda way, *sending: way(*sending), ways, asking, sent, NAMES))
                log.info("run %d: round %d acknowledged after %d kills", runs, number, reaper.done)
            killed += reaper.done
        runs += 1
        check_ledger(state, updates)
        with open_coordinator(workshop, state, settings_with(**changes), slow_models=free_work()) as coordinator:
            until(lambda: coordinator.current.closing is None, "the last model")
            coordinator.tick()
            assert (coordinator.current.round, coordinator.current.accepted) == (ROUNDS + 1, 0)
            found = [coordinator.folder.model(model).is_file() for model in models]
            assert (coordinator.current.base_sha256, found) == (models[-1], [True] * ROUNDS)
            assert results_of(state) == models
            for folder in ("incoming", "updates", "closing", "drafts"):
                assert list((state / folder).iterdir()) == []
            keys = [str(ROUNDS + 1)] if settings_with(**changes).strategy.private else []
            assert [path.name for path in (state / "noise").iterdir()] == keys
            assert len(list((state / "buffers").iterdir())) == (changes["strategy"] == "dp-ftrl")
            check_bytes(coordinator, updates, wire)
            kept = {path.name: sha256_of_file(path) for path in coordinator.folder.models.iterdir()}
            assert kept == {f"{sha256}.safetensors": sha256 for sha256 in (workshop.base_sha256, *models)}
    log.warning("%d kills in %d runs of %d rounds", killed, runs, ROUNDS)
