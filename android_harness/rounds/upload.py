"""Upload a phone's update from this machine, in the phone's name."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, StoppedError
from phonograd.device_runtime.client.server_client import RetryPolicy, Server, UploadReceipt, upload_update

# Answers after which a retry may succeed: too many requests, shutting down, disk full.
RETRY_STATUSES = frozenset({429, 503, 507})
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 10.0


def send_update(
    server: Server,
    path: Path,
    name: str,
    patience_seconds: float,
    stop: threading.Event,
    progress: Callable[[int, int], None],
) -> UploadReceipt:
    """Upload the update at `path` as phone `name`; resume until no byte got through for `patience_seconds`.

    Time that the server asks to wait, because the round is closing, does not count, up to RetryPolicy.closing_seconds.
    Raises ServerUnreachableError or ServerRefusedError when the patience is over or the server refuses for good,
    StoppedError once `stop` is set.
    """
    last_byte = time.monotonic()

    def on_sent(done: int, total: int) -> None:
        nonlocal last_byte
        last_byte = time.monotonic()
        _check(stop, path)
        progress(done, total)

    wait, closing = FIRST_WAIT_SECONDS, RetryPolicy.closing_seconds
    while True:
        _check(stop, path)
        try:
            # Each call resumes at the server's offset. One attempt per call, to check `stop` in between.
            return upload_update(server, path, name, on_sent, RetryPolicy(attempts=1, closing_seconds=0))
        except (ServerUnreachableError, ServerRefusedError) as error:
            if isinstance(error, ServerRefusedError) and error.status not in RETRY_STATUSES:
                raise
            told = error.retry_seconds or 0 if isinstance(error, ServerRefusedError) and error.status == 503 else 0
            if 0 < told <= closing:
                closing -= told
                last_byte += told
                stop.wait(told)
                continue
            if time.monotonic() + wait - last_byte > patience_seconds:
                raise
        stop.wait(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def _check(stop: threading.Event, path: Path) -> None:
    if stop.is_set():
        raise StoppedError(f"interrupted before the server had {path.name}", signal.SIGINT)
