"""A process that asks /healthz again and again while others send: threads beside the senders would wait for them."""

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
class Probed:
    """Seconds that each answer took, the connection among them; empty until the block has ended."""

    seconds: list[float] = field(default_factory=list)


@contextlib.contextmanager
def probing(port: int) -> Iterator[Probed]:
    """Ask this machine's `port` while the block lasts. Raises BenchError if /healthz was not healthy."""
    probed = Probed()
    with subprocess.Popen(
        [sys.executable, "-m", "phonograd.bench.uploads.probing", str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()  # the first answer
        try:
            yield probed
        finally:
            said, _ = process.communicate()  # its stdin's end
    if process.returncode or not said:
        raise BenchError("bench: /healthz was asked while phones uploaded, 200 expected, found another answer or none")
    probed.seconds = json.loads(said)


def main() -> None:
    """Entry point: the port. A line at the first answer; when stdin ends, the seconds of all as a JSON array."""
    stop, found = threading.Event(), [_ask(int(sys.argv[1]))]
    sys.stdout.write("\n")
    sys.stdout.flush()
    threading.Thread(target=_wait_for_the_end, args=(stop,), daemon=True).start()
    while not stop.wait(PAUSE_SECONDS):
        found.append(_ask(int(sys.argv[1])))
    sys.stdout.write(json.dumps(found))


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
