"""The server's ingestion: MB/s, memory while many phones upload at once, seconds from last byte to new model, and how
long other requests wait meanwhile.
"""

import http.client
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, BenchError, Say, rotate
from phonograd.bench.environment import version_of
from phonograd.bench.markdown import MB, Column, Table, figure, text
from phonograd.bench.measuring import in_fresh_process, peak_rss_bytes
from phonograd.bench.results import Document, result_of
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts, write_synthetic_updates
from phonograd.bench.uploads.bodies import Body, BodyMaker
from phonograd.bench.uploads.health_probe import probe_health
from phonograd.bench.uploads.receivers import Receiver, bare_handler, phonograd_serve, plain_copy
from phonograd.bench.uploads.sending import HOST, Upload, post_damaged, post_update, put_file, raw, send_at_once
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.export.presets import preset_named

SCHEMA_VERSION = 1
TOKENS = 4000
BARE, BARE_SYNC, COPY = "bare handler", "bare handler, synced", "file copy"
RECEIVED, ACCEPTED, CLIENT = "received", "accepted", "accepted, own client"
UNREACHED_CLIENTS = 1_000_000  # clients per round, so that the round stays open
POLL_SECONDS = 0.01
PASS_TRIALS = 3
SERVED_SECONDS = 300.0
# The server's limits: memory of 2.2 models and 150 MB, half the bare handler's MB/s, three passes.
MEMORY_MODELS, MEMORY_BYTES, LEAST_RATIO, MOST_PASSES = 2.2, 150_000_000, 0.5, 3.0
MOST_HEALTH_SECONDS = 0.3
# Its updates have 0.65 MB, so that their number takes the time.
CROWD_MODEL = LanguageModelConfig("lstm", vocabulary=2200, embedding=32, hidden=32, layers=2)


@dataclass(frozen=True)
class IngestBenchConfig:
    """at_once: parallel uploads when measuring MB/s, in addition to a single one; phones: parallel uploads when
    measuring memory; rounds: runs of each way to receive, and rounds closed when measuring the time after the last
    byte; crowds: phones that upload small updates at once while /healthz is requested.
    """

    preset: str = "popov-2x650"
    rounds: int = 5
    at_once: int = 4
    phones: tuple[int, ...] = (10, 40)
    crowds: tuple[int, ...] = (10, 50, 100, 200)
    pause: float = 1.0


def bench_ingest(config: IngestBenchConfig, say: Say = str) -> dict[str, Any]:
    """Run all measurements in a temporary folder. Raises BenchError, ArtifactsError, StorageError.

    The result has pass_seconds and copy_seconds, medians of `measure_passes`.
    """
    with tempfile.TemporaryDirectory() as place:
        bench = _Ingest(Path(place), config, say)
        throughput = list(bench.throughput())
        last_byte, passes = bench.last_bytes()
        return result_of(
            "ingest",
            SCHEMA_VERSION,
            versions=version_of("phonograd", "uvicorn", "starlette", "h11", "httptools", "uvloop"),
            preset=config.preset,
            model_bytes=bench.model_bytes,
            update_bytes=bench.maker.body(0, 1, "0" * 64).nbytes,
            rounds=config.rounds,
            throughput=throughput,
            memory=[bench.memory(phones) for phones in config.phones],
            last_byte=last_byte,
            crowds=list(bench.crowds()),
            pass_seconds=statistics.median(add for add, _ in passes),
            copy_seconds=statistics.median(copy for _, copy in passes),
        )


class _Ingest:
    def __init__(self, folder: Path, config: IngestBenchConfig, say: Say):
        self.folder, self.config, self.say = folder, config, say
        self.artifacts, self.update = folder / "artifacts", folder / "update"
        self._check_space()
        say(f"making artifacts and an update of {config.preset}")
        in_fresh_process(_make_material, self.artifacts, self.update, preset_named(config.preset).model)
        self.maker = BodyMaker(self.update)
        self.base_sha256 = self.maker.info.base_sha256
        self.model_bytes = (self.artifacts / WEIGHTS).stat().st_size
        self._phones = itertools.count(1)

    def _check_space(self) -> None:
        """Raise BenchError if the disk does not have room for the phones' updates and some reserve."""
        parallel = self.config.rounds * (self.config.at_once + 2)
        models = max(*self.config.phones, parallel) + 10
        needed = models * 4 * preset_named(self.config.preset).model.parameters
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise BenchError(f"bench: {self.folder}: {needed} bytes expected to be free, found {free}; set TMPDIR")

    def bodies(self, count: int, round_: int = 1, base_sha256: str | None = None) -> list[tuple[str, Body]]:
        numbers = [next(self._phones) for _ in range(count)]
        return [(f"phone-{n}", self.maker.body(n, round_, base_sha256 or self.base_sha256)) for n in numbers]

    def throughput(self) -> Iterator[Answers]:
        """Every way to receive, with one upload and with several at once, in turn.

        MB/s (10^6 bytes) from the first byte sent to the last answer: of each round, and the median. ratio: median of
        the rate divided by the bare handler's in the same round.
        """
        ways = [*itertools.product((BARE, BARE_SYNC, COPY, RECEIVED, ACCEPTED), (1, self.config.at_once)), (CLIENT, 1)]
        rates: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
        with ExitStack() as stack:
            place = self.folder / "throughput"
            place.mkdir()
            receivers = {
                BARE: stack.enter_context(bare_handler(place / "bare", sync=False)),
                BARE_SYNC: stack.enter_context(bare_handler(place / "synced", sync=True)),
                COPY: stack.enter_context(plain_copy(place / "copied")),
            }
            server = stack.enter_context(phonograd_serve(self.artifacts, place / "state", UNREACHED_CLIENTS))
            for number in range(self.config.rounds):
                self.say(f"throughput, round {number + 1} of {self.config.rounds}")
                for way in rotate(ways, number):
                    os.sync()  # writes left by earlier runs must not count here
                    rates[way].append(self._rate(*way, receivers.get(way[0], server)))
                    for folder in ("bare", "synced", "copied"):
                        _clear(place / folder)
            _remove(place)
        for (name, at_once), own in rates.items():
            bare = rates[BARE, at_once]
            ratio = statistics.median(a / b for a, b in zip(own, bare, strict=True))
            rate = statistics.median(own)
            yield {"way": name, "at_once": at_once, "mb_per_second": rate, "ratio": ratio, "each": own}

    def _rate(self, way: str, at_once: int, receiver: Receiver) -> float:
        uploads = self.bodies(at_once)
        total = sum(body.nbytes for _, body in uploads)
        if way == CLIENT:
            began = time.perf_counter()
            upload_update(f"http://{HOST}:{receiver.port}", self.update, uploads[0][0])
            return total / MB / (time.perf_counter() - began)
        make: Mapping[str, Callable[[str, Body], Upload]] = {
            BARE: lambda name, body: put_file(body, name),
            BARE_SYNC: lambda name, body: put_file(body, name),
            COPY: lambda _, body: raw(body),
            RECEIVED: lambda name, body: post_damaged(body, name),
            ACCEPTED: lambda name, body: post_update(body, name),
        }
        sent = send_at_once(receiver.port, [make[way](name, body) for name, body in uploads])
        return total / MB / (max(one.answered for one in sent) - min(one.began for one in sent))

    def last_bytes(self) -> tuple[list[Answers], list[tuple[float, float]]]:
        """Rounds of two phones, one after the other; the second one's last byte closes the round.

        The time from that until its model is served. pause: how long the phone waits before its last 64 KiB; passes:
        seconds divided by those of a pass over the model's memory in the same round; copies: divided by those of a
        synced copy of its file; both medians.
        """
        pauses = (0.0, self.config.pause)
        seconds: dict[float, list[float]] = {pause: [] for pause in pauses}
        passes: list[tuple[float, float]] = []
        place = self.folder / "last-byte"
        place.mkdir()
        with phonograd_serve(self.artifacts, place / "state", 2) as server:
            base_sha256, round_ = self.base_sha256, 1
            for number in range(self.config.rounds):
                self.say(f"last byte to new model, round {number + 1} of {self.config.rounds}")
                passes.append(in_fresh_process(measure_passes, self.artifacts / WEIGHTS, self.update, place / "pass"))
                for pause in pauses:
                    (one, first), (other, last) = self.bodies(2, round_, base_sha256)
                    os.sync()
                    send_at_once(server.port, [post_update(first, one)])
                    sent = send_at_once(server.port, [post_update(last, other, pause=pause)])
                    served, base_sha256 = _wait_served(server, base_sha256)
                    seconds[pause].append(served - sent[0].last_byte)
                    round_ += 1
        _remove(place)
        return [
            {
                "pause": pause,
                "seconds": statistics.median(own),
                "passes": statistics.median(a / b for a, (b, _) in zip(own, passes, strict=True)),
                "copies": statistics.median(a / b for a, (_, b) in zip(own, passes, strict=True)),
                "each": own,
            }
            for pause, own in seconds.items()
        ], passes

    def memory(self, phones: int) -> Answers:
        """`phones` uploads that begin at once close the round of a fresh server.

        idle_rss_bytes: its peak before them; limit_bytes: the most it may use; closing_seconds: from the last byte sent
        until the new model is served; seconds: from the first byte sent until then.
        """
        self.say(f"{phones} phones upload at once")
        place = self.folder / f"memory-{phones}"
        place.mkdir()
        uploads = self.bodies(phones)
        with phonograd_serve(self.artifacts, place / "state", phones) as server:
            idle = peak_rss_bytes(server.pid)
            os.sync()
            sent = send_at_once(server.port, [post_update(body, name) for name, body in uploads])
            served, _ = _wait_served(server, self.base_sha256)
            peak = peak_rss_bytes(server.pid)
        _remove(place)
        began, last_byte = min(one.began for one in sent), max(one.last_byte for one in sent)
        return {
            "phones": phones,
            "idle_rss_bytes": idle,
            "peak_rss_bytes": peak,
            "limit_bytes": round(MEMORY_MODELS * self.model_bytes) + MEMORY_BYTES,
            "seconds": served - began,
            "closing_seconds": served - last_byte,
            "mb_per_second": sum(body.nbytes for _, body in uploads) / MB / (served - began),
        }

    def crowds(self) -> Iterator[Answers]:
        """Small updates of many phones, which begin at once, close the round of a fresh server each time.

        seconds: from the first byte sent to the last answer. slowest_health_seconds, median_health_seconds: of `asked`
        requests of /healthz meanwhile, one after the other, each over its own connection.
        """
        artifacts, update = self.folder / "crowd-artifacts", self.folder / "crowd-update"
        in_fresh_process(_make_material, artifacts, update, CROWD_MODEL)
        maker = BodyMaker(update)
        for phones in self.config.crowds:
            self.say(f"a crowd of {phones} phones uploads at once")
            bodies = [maker.body(n, 1, maker.info.base_sha256) for n in range(phones)]
            parcels = [post_update(body, f"phone-{n}") for n, body in enumerate(bodies)]
            place = self.folder / f"crowd-{phones}"
            place.mkdir()
            with phonograd_serve(artifacts, place / "state", phones) as server, probe_health(server.port) as probed:
                os.sync()
                sent = send_at_once(server.port, parcels)
            _remove(place)
            yield {
                "phones": phones,
                "update_bytes": bodies[0].nbytes,
                "seconds": max(one.answered for one in sent) - min(one.began for one in sent),
                "asked": len(probed.seconds),
                "slowest_health_seconds": max(probed.seconds),
                "median_health_seconds": statistics.median(probed.seconds),
            }


def measure_passes(base: Path, update: Path, scratch: Path) -> tuple[float, float]:
    """Seconds of one pass, c = a + b over all float32 arrays of a model, with a and b in memory and c in newly
    allocated memory; and seconds to copy the model's file and sync the copy. Each is the median of a few trials.

    `scratch` is a temporary file, which is removed.
    """
    weights, trained = load_tensors(base), load_tensors(update)

    def add() -> None:
        sums = [np.add(array, trained[name]) for name, array in weights.items()]
        del sums

    def copy() -> None:
        with base.open("rb") as source, scratch.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())

    medians = _median_seconds(add), _median_seconds(copy)
    scratch.unlink()
    return medians


def _median_seconds(work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(PASS_TRIALS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _make_material(artifacts: Path, update: Path, model: LanguageModelConfig) -> None:
    write_synthetic_artifacts(artifacts, model, random_weights(model, 0))
    write_synthetic_updates(artifacts / WEIGHTS, {"full-f32": update}, 0, TOKENS)


def _wait_served(server: Receiver, old_sha256: str) -> tuple[float, str]:
    deadline = time.perf_counter() + SERVED_SECONDS
    while time.perf_counter() < deadline:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=SERVED_SECONDS)
        with closing(connection):
            connection.request("GET", "/v1/model", headers={"If-None-Match": f'"{old_sha256}"'})
            response = connection.getresponse()
            if response.status == http.HTTPStatus.OK and response.read(1):
                return time.perf_counter(), response.headers["ETag"].strip('"')
        time.sleep(POLL_SECONDS)
    raise BenchError(f"bench: no new model {SERVED_SECONDS:g} s after a round's last upload; see what the server logs")


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _remove(folder: Path) -> None:
    """Give the disk back now: what follows needs it."""
    shutil.rmtree(folder)


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    megabytes = f"{document['update_bytes'] / MB:.1f} MB"
    yield f"Uploads: {document['preset']}, {megabytes} each"
    yield (
        f"{versions}. MB/s of a real server over loopback, from the first byte sent to the last answer, "
        f"{document['rounds']} rounds in turn. Received: written to disk and hashed, then refused; accepted: also "
        "synced, folded and in the ledger. The bare handler, a starlette handler under uvicorn, only writes the "
        "body to a file."
    )
    columns = {
        "way": text("way"),
        "at once": figure("at_once", "d"),
        "MB/s": figure("mb_per_second", ".0f"),
        "/ bare handler": figure("ratio", ".0%"),
    }
    yield Table(
        f"Uploads of {megabytes}: received, accepted at least {LEAST_RATIO:.0%}", columns, document["throughput"]
    )
    yield "Peak memory of a fresh server while many phones upload at once and close the round."
    columns = {
        "phones": figure("phones", "d"),
        "peak memory, MB": figure("peak_rss_bytes", ".0f", MB),
        "limit": figure("limit_bytes", ".0f", MB),
        "idle, MB": figure("idle_rss_bytes", ".0f", MB),
        "MB/s": figure("mb_per_second", ".0f"),
        "last byte to model, s": figure("closing_seconds", ".2f"),
    }
    yield Table("Memory of the server", columns, document["memory"])
    taken = [f"{document[name]:.3f} s" for name in ("pass_seconds", "copy_seconds")]
    yield (
        "The time from the last byte of a round's last upload to the first byte of the new model; the other "
        f"updates were folded before. A pass is c = a + b over the weights, with c in new memory: {taken[0]}. A copy "
        f"reads the model's file, writes another and syncs it: {taken[1]}."
    )
    columns = {
        "sent": Column(lambda one: f"last 64 KiB {one['pause']:g} s later" if one["pause"] else "without a pause"),
        "seconds": figure("seconds", ".2f"),
        "passes": figure("passes", ".1f"),
        "copies": figure("copies", ".1f"),
    }
    title = f"From a round's last byte to its model: at most {MOST_PASSES:g} passes of {taken[0]}; a copy: {taken[1]}"
    yield Table(title, columns, document["last_byte"])
    yield (
        "Small updates of many phones at once: the time from the first byte sent to the last answer, and the "
        "time of /healthz requests meanwhile."
    )
    columns = {
        "phones": figure("phones", "d"),
        "MB each": figure("update_bytes", ".2f", MB),
        "seconds": figure("seconds", ".2f"),
        "slowest /healthz, s": figure("slowest_health_seconds", ".3f"),
        "median, s": figure("median_health_seconds", ".3f"),
    }
    yield Table(f"While a crowd uploads: /healthz at most {MOST_HEALTH_SECONDS:g} s", columns, document["crowds"])
