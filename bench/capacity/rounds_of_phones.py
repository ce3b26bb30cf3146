"""Rounds of many phones through a real server: how long requests take, and the server's CPU time and memory."""

import http.client
import json
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from phonograd.bench.contestants import BenchError, Say
from phonograd.bench.measuring import peak_rss_bytes, rss_bytes
from phonograd.bench.process_tree import cpu_seconds
from phonograd.bench.uploads.bodies import Body, BodyMaker
from phonograd.bench.uploads.receivers import Receiver, phonograd_serve
from phonograd.bench.uploads.sending import ANSWER_SECONDS, HOST, upload_headers
from phonograd.device_runtime.client.protocol import PHONE_HEADER
from phonograd.device_runtime.formats.manifest import WEIGHTS

# A round is asked for, its model or link fetched, and an update sent; the last one of a round waits for its model.
ROUND, DOWNLOAD, UPLOAD, CLOSING = "GET round", "GET model or link", "POST update", "POST update, the round's last"
# All phones of this benchmark have the same address, whose rate is not what is measured.
UNLIMITED = ("--set", "security.requests_per_second=1e9", "--set", "security.burst=1000000000")

TICK_SECONDS = 0.01  # the kernel counts CPU time in these: of little work, none may be seen


@dataclass(frozen=True)
class Requests:
    """Seconds of one kind of request: of a phone's own connection, from the request to the last byte of the answer."""

    kind: str
    count: int
    median: float
    p99: float
    slowest: float


@dataclass(frozen=True)
class PhonesRun:
    """`phones` phones, `at_once` at a time, in `rounds` rounds of as many each, all through one server.

    update_bytes, link_bytes: of one phone; link_bytes is the mean of the downloads after round 1, in which phones have
    the model from their app. seconds: of all requests, without making the updates. cpu_seconds: the server's.
    round_rss_bytes: its resident memory after each round; peak_rss_bytes: at any moment. ledger_bytes: of the database
    at the end.
    """

    model: str
    model_bytes: int
    update_bytes: int
    link_bytes: float
    phones: int
    at_once: int
    rounds: int
    seconds: float
    cpu_seconds: float
    ledger_bytes: int
    idle_rss_bytes: int
    round_rss_bytes: tuple[int, ...]
    peak_rss_bytes: int
    requests: tuple[Requests, ...]

    @property
    def phones_per_second(self) -> float:
        """What one server did."""
        return self.phones / self.seconds

    @property
    def cpu_per_phone(self) -> float:
        """Seconds of CPU time that a phone's requests and its share of the rounds' closing took."""
        return max(self.cpu_seconds, TICK_SECONDS) / self.phones


def run_phones(
    artifacts: Path,
    updates: Sequence[Path],
    state: Path,
    model: str,
    phones: int,
    rounds: int,
    at_once: int,
    say: Say = str,
    serve: Callable[..., AbstractContextManager[Receiver]] = phonograd_serve,
) -> PhonesRun:
    """Start a server and run the rounds. `updates`: some of round 1, which phones in turn send under their own names.

    serve: how to start it, as `phonograd_serve`. Raises BenchError for an unexpected answer.
    """
    makers, per_round = [BodyMaker(path) for path in updates], phones // rounds
    seconds: dict[str, list[float]] = defaultdict(list)
    downloaded: list[int] = []
    memory: list[int] = []
    elapsed = 0.0
    options = ("--set", "publish.codec=top-rows", *UNLIMITED)
    with serve(artifacts, state, per_round, *options) as server, ThreadPoolExecutor(at_once) as pool:
        idle, cpu = rss_bytes(server.pid), cpu_seconds(server.pid)
        base_sha256 = before = makers[0].info.base_sha256
        for number in range(1, rounds + 1):
            say(f"{model}: round {number} of {rounds}, {per_round} phones")
            first = (number - 1) * per_round
            sent = [
                _Phone(server.port, f"phone-{n}", makers[n % len(makers)].body(n, number, base_sha256), before)
                for n in range(first, first + per_round)
            ]
            began = perf_counter()
            answers = list(pool.map(_Phone.take_part, sent))
            elapsed += perf_counter() - began
            for timed, nbytes in answers:
                for kind, taken in timed.items():
                    seconds[kind].append(taken)
                downloaded += [nbytes] if number > 1 else []
            memory.append(rss_bytes(server.pid))
            before, base_sha256 = base_sha256, _current_model(server, number + 1)
        cpu = cpu_seconds(server.pid) - cpu
        peak = peak_rss_bytes(server.pid)
    return PhonesRun(
        model=model,
        model_bytes=(artifacts / WEIGHTS).stat().st_size,
        update_bytes=sent[0].body.nbytes,
        link_bytes=statistics.fmean(downloaded) if downloaded else 0.0,
        phones=per_round * rounds,
        at_once=at_once,
        rounds=rounds,
        seconds=elapsed,
        cpu_seconds=cpu,
        ledger_bytes=sum(path.stat().st_size for path in state.glob("ledger.sqlite*")),
        idle_rss_bytes=idle,
        round_rss_bytes=tuple(memory),
        peak_rss_bytes=peak,
        requests=tuple(_summaries(seconds)),
    )


class _Answer(NamedTuple):
    content: bytes
    seconds: float


@dataclass(frozen=True)
class _Phone:
    """A phone with one connection. base: the model that it has, of the round before."""

    port: int
    name: str
    body: Body
    base: str

    def take_part(self) -> tuple[dict[str, float], int]:
        """Ask for the round, fetch its model, send the update: the seconds of each request, and the bytes fetched."""
        with closing(http.client.HTTPConnection(HOST, self.port, timeout=ANSWER_SECONDS)) as connection:
            timed: dict[str, float] = {}
            opened = self._ask(connection, "GET", "/v1/round", HTTPStatus.OK)
            timed[ROUND] = opened.seconds
            model, nbytes = json.loads(opened.content)["base_sha256"], 0
            if model != self.base:
                path = f"/v1/models/{model}?base={self.base}"
                fetched = self._ask(connection, "GET", path, HTTPStatus.OK)
                timed[DOWNLOAD], nbytes = fetched.seconds, len(fetched.content)
            sent = self._ask(connection, "POST", "/v1/uploads", HTTPStatus.CREATED, self.body)
            receipt = json.loads(sent.content)["receipt"]
            timed[CLOSING if receipt["round_closed"] else UPLOAD] = sent.seconds
        return timed, nbytes

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        status: HTTPStatus,
        sent: Body | None = None,
    ) -> "_Answer":
        headers, content = {PHONE_HEADER: self.name}, None
        if sent is not None:
            headers, content = upload_headers(self.name, sent.nbytes, sent.sha256), sent.whole()
        began = perf_counter()
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(
                f"bench: {self.name}: {method} {path[:40]}: {error!r}; see what the server logs"
            ) from error
        if response.status != status:
            told = answer.decode("utf-8", "replace")[:300]
            raise BenchError(
                f"bench: status {status:d} expected for {method} {path[:40]}, found {response.status}: {told}"
            )
        return _Answer(answer, perf_counter() - began)


def _current_model(server: Receiver, number: int) -> str:
    with closing(http.client.HTTPConnection(HOST, server.port, timeout=ANSWER_SECONDS)) as connection:
        connection.request("GET", "/v1/round")
        opened = json.loads(connection.getresponse().read())
    if opened["round"] != number:
        raise BenchError(f"bench: round {number} expected to be open, found {opened['round']}")
    return str(opened["base_sha256"])


def _summaries(seconds: Mapping[str, Sequence[float]]) -> Iterator[Requests]:
    for kind in (ROUND, DOWNLOAD, UPLOAD, CLOSING):
        if not (own := sorted(seconds.get(kind, ()))):
            continue
        yield Requests(kind, len(own), statistics.median(own), own[(len(own) * 99 - 1) // 100], own[-1])
