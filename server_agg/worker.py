"""A worker's process, which `workers` starts: `python -m phonograd.server_agg.worker`.

Its stdin begins with a Job. Where stdin ends the parent is gone, and the worker ends too. On stdout goes an Answer,
once it takes connections, or the error for which it cannot.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from typing import BinaryIO

import msgspec

from phonograd.device_runtime.base.documents import written
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.system import use_one_malloc_arena
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.server_agg.aggregation.own import OWN
from phonograd.server_agg.aggregation.settings import STRATEGIES
from phonograd.server_agg.listening import Address, Listener
from phonograd.server_agg.log_format import configure
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.workers import Answer, Job, encoded

log = logging.getLogger(__name__)


def main() -> None:
    """Serve until SIGTERM, or until the parent ends."""
    parent = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints is no answer
    job = _job_in(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_one_malloc_arena()
    if job.log is not None:
        configure(sys.stderr, *job.log)
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: _numbered(record, job.worker.number))
    try:
        _serve(job, parent)
    except PhonogradError as error:
        _tell(parent, Answer(error=str(error), code=error.exit_code))
        log.error("worker %d: %s", job.worker.number, error)
        sys.exit(error.exit_code)


def _job_in(line: bytes) -> Job:
    values = msgspec.msgpack.decode(bytes.fromhex(line.decode()))
    strategy = values["settings"]["strategy"]["strategy"]
    if strategy not in STRATEGIES:
        OWN.load(strategy)  # before its settings are checked
    return msgspec.convert(values, Job, dec_hook=lambda kind, value: kind(value))


def _serve(job: Job, parent: BinaryIO) -> None:
    coordinator = Coordinator(open_artifacts(job.artifacts), job.state, job.settings, worker=job.worker)
    with contextlib.closing(coordinator):
        listener, owner = Listener(job.settings, job.listener), Owner(job.token, job.cookie)
        server = AggregationServer(coordinator, job.settings, listener, owner)
        with server.handling_signals():
            address = Address(server.url, server.local_url, server.admin_url, server.admin_token)
            _tell(parent, Answer(address, written(coordinator.current)))
            gc.freeze()  # as `server.serve` does
            server.run()


def _tell(parent: BinaryIO, answer: Answer) -> None:
    with contextlib.suppress(OSError, ValueError), parent:  # it is gone, or has its one answer
        parent.write(encoded(answer))


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing comes, but its end; not by sys.stdin, whose lock would be held
    os.kill(os.getpid(), signal.SIGTERM)


def _numbered(record: logging.LogRecord, number: int) -> bool:
    record.worker = number
    return True


if __name__ == "__main__":
    main()
