"""What the parts of a server's work cost: receiving, decoding and folding, the ledger's commits, sending models."""

import http.client
import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert

from phonograd.bench.contestants import BenchError
from phonograd.bench.process_tree import cpu_seconds
from phonograd.bench.uploads.bodies import BodyMaker
from phonograd.bench.uploads.receivers import Receiver
from phonograd.bench.uploads.sending import ANSWER_SECONDS, HOST, post_damaged, send_at_once
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import RoundContext
from phonograd.server_agg.rounds.opening import add_round
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import sums
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import HTTP_COUNTERS, TCP_COUNTERS, Model, Traffic, Update

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Rate:
    """units (each of `unit`) a second of one core's time, or, where the disk sets it, of time (`wall`).

    seconds: of one unit, the median over `runs` of them.
    """

    name: str
    unit: str
    wall: bool
    seconds: float
    runs: int


def measure_update(artifacts: Path, update: Path, runs: int) -> Rate:
    """Decoding an update, checking it and adding it to a round: CPU time, of all threads."""
    seconds = []
    with TensorFile(artifacts / WEIGHTS) as base, UpdateFile(update) as one:
        strategy = strategy_of(StrategySettings())
        aggregation = strategy.begin(base, one.info.base_sha256, RoundContext(1, bytes(32), 0))
        for _ in range(runs):
            began = time.process_time()
            with DecodedUpdate(one, base) as decoded:
                aggregation.take(decoded, strategy.weight(one.info))
            seconds.append(time.process_time() - began)
    return Rate("decoding, checking and folding", "updates", False, statistics.median(seconds), runs)


def measure_commits(place: Path | str, runs: int) -> Rate:
    """Transactions that each add an update and its traffic to a ledger, durably. `place`: a new one's."""
    ledger, seconds = _ledger(place), []
    with closing(ledger):
        for number in range(runs):
            row = Update(
                id=f"{number:032x}",
                round=1,
                phone=f"phone-{number}",
                state="accepted",
                length=1,
                created_at=0.0,
            )
            ledger.count(1, row.phone, "upload", WireBytes(up_headers=1, up_body=1))
            began = time.perf_counter()
            with ledger.writing() as session:
                session.add(row)
            seconds.append(time.perf_counter() - began)
    return Rate("ledger commits", "commits", True, statistics.median(seconds), runs)


def measure_reading(place: Path | str, updates: int, runs: int) -> Rate:
    """What /metrics reads of each update in the open round. `place`: a new ledger's."""
    ledger, seconds = _ledger(place), []
    row = {"round": 1, "state": "accepted", "length": 1, "created_at": 0.0, "requests": 1}
    counters = dict.fromkeys((*HTTP_COUNTERS, *TCP_COUNTERS), 1)
    with closing(ledger):
        with ledger.writing() as session:
            phones = [f"phone-{number}" for number in range(updates)]
            session.execute(insert(Update), [{"id": phone, "phone": phone, **row} for phone in phones])
            for kind in ("upload", "round", "link-top-rows"):
                session.execute(
                    insert(Traffic), [{"round": 1, "phone": phone, "kind": kind, **counters} for phone in phones]
                )
        for _ in range(runs):
            began = time.perf_counter()
            with ledger.reading() as session:
                sums.update_sums(session)
                sums.traffic_sums(session)
            seconds.append((time.perf_counter() - began) / updates)
    return Rate("/metrics", "updates in the open round", True, statistics.median(seconds), runs)


def _ledger(place: Path | str) -> Ledger:
    ledger, model = Ledger(place), "0" * 64
    with ledger.writing() as session:
        session.add(Model(sha256=model, round=0, bytes=1, created_at=0.0))
        session.flush()
        add_round(session, 0.0, 1, model, ServerSettings())
    return ledger


def measure_receiving(server: Receiver, maker: BodyMaker, runs: int) -> Rate:
    """The server's CPU time to receive and hash a MB; updates are refused then, so nothing else is done with them."""
    body = maker.body(0, 1, maker.info.base_sha256)
    return _of_server(
        server, "receiving", body.nbytes, runs, lambda: send_at_once(server.port, [post_damaged(body, "p")])
    )


def measure_sending(server: Receiver, nbytes: int, runs: int) -> Rate:
    """The server's CPU time to send a MB of its current model, of `nbytes`."""

    def fetch() -> None:
        with closing(http.client.HTTPConnection(HOST, server.port, timeout=ANSWER_SECONDS)) as connection:
            connection.request("GET", "/v1/model")
            response = connection.getresponse()
            got = 0
            while piece := response.read(READ_BYTES):
                got += len(piece)
        if got != nbytes:
            raise BenchError(f"bench: a model of {nbytes} bytes expected, found {got}")

    return _of_server(server, "sending models", nbytes, runs, fetch)


def _of_server(server: Receiver, name: str, nbytes: int, runs: int, request: Callable[[], object]) -> Rate:
    """CPU seconds a MB of all runs together: the kernel counts CPU time in hundredths of a second."""
    os.sync()
    began = cpu_seconds(server.pid)
    for _ in range(runs):
        request()
    return Rate(name, "MB", False, (cpu_seconds(server.pid) - began) / (runs * nbytes / 1e6), runs)
