"""`serve --workers`: the models of one process, whichever workers are killed; who dies is replaced or followed."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from phonograd.api.serving import start_server
from phonograd.bench.process_tree import _tree
from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.client.server_client import Connection
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.folder_claim import lock
from tests.server_agg import test_crashes as crashes
from tests.server_agg.relay import relay_to
from tests.server_agg.test_rounds import opened
from tests.server_agg.workshop import SMALL, Workshop, client_of, random_weights, settings_with, write_artifacts
from tests.support.waiting import PATIENCE_SECONDS, until

SEED = int(os.environ.get("PHONOGRAD_CRASH_SEED", "0"))
CHANGES: dict[str, object] = {"clients_per_round": crashes.PHONES, "retry_seconds": 0.01}


@dataclass
class Serving:
    """A parent with its workers. log: what they wrote to stderr."""

    process: "subprocess.Popen[str]"
    url: str
    admin_url: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def workers(self) -> list[int]:
        return [pid for pid, fields in _tree(self.process.pid) if pid != self.process.pid and fields[0] != "Z"]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def serving(workshop: Workshop, state: Path, workers: int, *more: object, **process_has: Any) -> Iterator[Serving]:
    """Ends with whatever it left running. process_has: of Popen."""
    log = state.with_name(f"{state.name}.log")
    options = ["--state", state, "--workers", workers, "--port", 0, "--clients-per-round", crashes.PHONES, *more]
    line = ["serve", "--json", "--artifacts", workshop.artifacts.folder, "--retry-seconds", 0.01, *options]
    with log.open("w") as errors, subprocess.Popen(
        [sys.executable, "-m", "phonograd", *map(str, line)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "XDG_STATE_HOME": str(state.parent)},
        **process_has,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline() or pytest.fail(log.read_text()))
            yield Serving(process, said["url"], said["admin_url"], log)
        finally:
            process.kill()


def rounds(
    serving: Serving, updates: crashes.Updates, tmp_path: Path, chance: random.Random, url: str | None = None
) -> None:
    """Phones that send a round's updates at once, each in its own way, until each is acknowledged.

    And until the next round is open: a worker may close the last one after it answers, and be killed before that.
    """
    asking = Connection(url or serving.url, None)
    names = crashes.names()
    for sent in updates:
        ways = chance.sample(crashes.WAYS, len(sent))
        with ThreadPoolExecutor(len(sent)) as phones:
            list(phones.map(lambda name: crashes.fetch(asking, tmp_path / name, name), names))
            list(phones.map(lambda way, *sending: way(asking, *sending), ways, sent, names))
        with UpdateFile(sent[0]) as update:
            number = update.info.round
        until(lambda number=number: open_round(asking.url) > number, "the next round")  # type: ignore[misc]


def open_round(url: str) -> int:
    """The open round's number; 0 where a killed worker does not answer."""
    with contextlib.suppress(httpx.TransportError):
        return int(httpx.get(f"{url}/v1/round").json().get("round", 0))
    return 0


def check(workshop: Workshop, state: Path, updates: crashes.Updates, models: list[str]) -> None:
    """The state of stopped workers, as one server finds it."""
    crashes.check_ledger(state, updates)
    with opened(workshop, state, settings_with(**CHANGES)) as coordinator:
        coordinator.tick()
        assert (coordinator.current.round, coordinator.current.accepted) == (len(models) + 1, 0)
        assert coordinator.current.base_sha256 == models[-1]
        for folder in ("incoming", "updates", "parts", "drafts"):
            assert list((state / folder).iterdir()) == [], folder


def test_two_workers_make_the_models_of_one_and_one_that_is_killed_is_replaced(
    workshop: Workshop, tmp_path: Path
) -> None:
    updates, models = crashes.calm_run(workshop, tmp_path / "one", CHANGES)
    state, chance = tmp_path / "two", random.Random(SEED)
    with serving(workshop, state, 2) as two:
        before = two.workers()
        assert len(before) == 2
        rounds(two, updates[:1], tmp_path, chance)
        for number, victim in enumerate(before, 1):
            os.kill(victim, signal.SIGKILL)
            rounds(two, updates[number : number + 1], tmp_path, chance)
            until(lambda: len(two.workers()) == 2, "another worker")
        assert not set(before) & set(two.workers())
        assert two.log.read_text().count("ended with code -9 and is started again") == 2
        assert two.stop() == 0
    assert crashes.results_of(state) == models
    check(workshop, state, updates, models)


def test_workers_end_with_their_parent_and_the_folder_is_locked_until_they_have(
    workshop: Workshop, tmp_path: Path
) -> None:
    with serving(workshop, tmp_path / "state", 2) as two:
        (pid, other) = two.workers()
        os.kill(pid, signal.SIGSTOP)
        try:
            two.process.kill()
            until(lambda: not Path(f"/proc/{other}").exists(), "the end of the other worker")
            with pytest.raises(StorageError, match="another server uses this state folder"):
                lock(tmp_path / "state")
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{pid}").exists(), "its end")
    os.close(lock(tmp_path / "state"))


def run_serve(workshop: Workshop, state: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    line = ["serve", "--artifacts", str(workshop.artifacts.folder), "--state", str(state), "--port", "0", *options]
    return subprocess.run(
        [sys.executable, "-m", "phonograd", *line],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_all_workers_know_the_owner(workshop: Workshop, tmp_path: Path) -> None:
    """By the link, by its cookie, and by the owner file: connection after connection, whichever answers."""
    with serving(workshop, tmp_path / "state", 3) as three:
        _, _, token = three.admin_url.partition("key=")
        with client_of(three.url, {}) as browser:
            assert browser.get(three.admin_url).status_code in (200, 303, 307)
            cookies = dict(browser.cookies)
        answering = set[str]()

        def asked() -> bool:
            with client_of(three.url, {"Authorization": f"Bearer {token}"}) as http:
                page = http.get("/metrics")
                assert page.status_code == 200
                answering.update(line for line in page.text.splitlines() if line.startswith("process_start_time"))
            with httpx.Client(base_url=three.url, trust_env=False, cookies=cookies) as http:
                assert http.get("/").status_code == 200
            return len(answering) == 3

        until(asked, "an answer of each worker")
        assert all('worker="' in line for line in answering)


def test_a_start_that_fails_says_why_and_leaves_nothing(
    workshop: Workshop, make_workshop: Callable[..., Workshop], tmp_path: Path
) -> None:
    weights = random_weights(SMALL, 0)
    bad = write_artifacts(tmp_path / "bad", SMALL, {name: value * np.nan for name, value in weights.items()})
    failed = run_serve(Workshop(tmp_path, SMALL, bad), tmp_path / "new", "--workers", "2")
    assert (failed.returncode, (tmp_path / "new").exists()) == (6, False)
    assert failed.stderr.splitlines()[-1].startswith("phonograd: ")
    with opened(workshop, tmp_path / "state"):
        pass
    other = make_workshop(seed=1, name="others")
    failed = run_serve(other, tmp_path / "state", "--workers", "2")
    assert failed.returncode == 5
    assert "expected one of its models in" in failed.stderr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workers": 0}, "`workers` is 0, expected 1 to 64"),
        ({"workers": 65}, "`workers` is 65, expected 1 to 64"),
        ({"ledger": "postgresql://a@b/c", "store": "s3://b/f"}, "`workers` is 2, expected 1 with `ledger`: start more"),
        ({"store": "s3://b/f"}, "`workers` is 2, expected 1 with `store`: workers share files"),
        (
            {"weighting": "equal", "masked": MaskedSettings(), "clients_per_round": MaskedSettings().cohort},
            "1 with `masked`: its cohorts are",
        ),
        ({"strategy": "transfer"}, "`workers` is 2, expected 1 with transfer: one process trains its models"),
    ],
)
def test_what_workers_cannot_share_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        settings_with(**{"workers": 2} | changes)


def test_a_server_in_a_thread_has_no_workers(workshop: Workshop, state: Path) -> None:
    with pytest.raises(UsageError, match="`workers` is 2, expected 1: several are started by"):
        start_server(workshop.artifacts, state, settings_with(workers=2))
    assert not state.exists()


@pytest.mark.long
def test_rounds_of_one_of_four_and_of_four_that_are_killed_at_random(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashes, "ROUNDS", 4)
    updates, models = crashes.calm_run(workshop, tmp_path / "one", CHANGES)
    for name, kills in (("four", 0), ("killed", crashes.CRASHES)):
        state, chance, over = tmp_path / name, random.Random(SEED), threading.Event()
        with serving(workshop, state, 4) as four, relay_to(four.port) as (wire, url):

            def reap(four: Serving = four, kills: int = kills, over: threading.Event = over) -> None:
                moments = random.Random(SEED + 1)
                for _ in range(kills):
                    if over.wait(moments.uniform(0.02, 1.0)):
                        return
                    with contextlib.suppress(ProcessLookupError, IndexError):
                        os.kill(moments.choice(four.workers()), signal.SIGKILL)

            reaper = threading.Thread(target=reap)
            reaper.start()
            try:
                rounds(four, updates, tmp_path, chance, url)
            finally:
                over.set()
                reaper.join()
            until(lambda four=four: len(four.workers()) == 4, "all workers")  # type: ignore[misc]
            assert four.stop() == 0
            assert "Traceback" not in four.log.read_text()
        assert crashes.results_of(state) == models
        check(workshop, state, updates, models)
        with opened(workshop, state, settings_with(**CHANGES)) as coordinator:
            crashes.check_bytes(coordinator, updates, wire)
