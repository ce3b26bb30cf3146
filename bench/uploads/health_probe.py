"""A process that requests /healthz repeatedly while others upload. A thread of the sending process would be delayed."""

import contextlib
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from phonograd.bench.contestants import ROOT, BenchError
from phonograd.bench.uploads.sending import ANSWER_SECONDS, HOST

PAUSE_SECONDS = 0.01


@dataclass
class HealthTimes:
    """The seconds of each request, including the connection; empty until the block has ended."""

    seconds: list[float] = field(default_factory=list)


@contextlib.contextmanager
def probe_health(port: int) -> Iterator[HealthTimes]:
    """Request /healthz from this machine's `port` during the block. Raises BenchError for an answer other than 200."""
    probed = HealthTimes()
    with subprocess.Popen(
        [sys.executable, "-m", "phonograd.bench.uploads.health_probe", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # waits for the first answer
        try:
            yield probed
        finally:
            said, _ = process.communicate()  # closes its stdin
    if process.returncode or not said:
        raise BenchError("bench: /healthz during uploads: status 200 expected, found another answer or none")
    probed.seconds = json.loads(said)


def main() -> None:
    """Entry point; argument: the port. Prints a line at the first answer and, when stdin ends, all seconds as JSON."""
    stop, answers = threading.Event(), [_ask(int(sys.argv[1]))]
    sys.stdout.write("\n")
    sys.stdout.flush()
    threading.Thread(target=_wait_for_the_end, args=(stop,), daemon=True).start()
    while not stop.wait(PAUSE_SECONDS):
        answers.append(_ask(int(sys.argv[1])))
    sys.stdout.write(json.dumps(answers))


def _wait_for_the_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def _ask(port: int) -> float:
    began = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection(HOST, port, timeout=ANSWER_SECONDS)) as connection:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        response.read()
    if response.status != HTTPStatus.OK:
        raise SystemExit(f"/healthz: {response.status}")
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
