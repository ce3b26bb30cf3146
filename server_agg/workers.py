"""`serve --workers N`: processes that share one state folder and one socket, and their parent, which serves nobody.

The parent has the folder's lock and binds the socket; every worker inherits both. The first worker does what the start
of a server does, alone; the others follow. One that dies is started again. The workers end when the parent does.
"""

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.system import interrupts_held
from phonograd.server_agg.listening import Address, Listener
from phonograd.server_agg.log_format import LogFormat, event
from phonograd.server_agg.security.tokens import NewToken
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.folder_claim import Claim, claim, lock
from phonograd.server_agg.storage.worker import Worker

log = logging.getLogger(__name__)

# A worker that died begins again after so long for each of its deaths in the last REMEMBERED_SECONDS.
PAUSE_SECONDS = 0.1
REMEMBERED_SECONDS = 60.0
MOST_FAILED_STARTS = 5  # of a worker, one after the other, that no signal ended

OnReady: TypeAlias = Callable[[Address, Mapping[str, Any]], None]


class WorkerError(PhonogradError):
    """A worker can't start, or failed while it stopped. exit_code: the worker's own, if no signal ended it."""

    exit_code = 33

    def __init__(self, message: str, code: int):
        super().__init__(message)
        if code > 0:
            self.exit_code = code


@dataclass(frozen=True)
class Job:
    """What a worker is told. log: its level, format and options (see configure); None: nothing. listener: the
    descriptor of the socket. token, cookie: the owner's.
    """

    artifacts: Path
    state: Path
    settings: ServerSettings
    log: tuple[int, LogFormat, dict[str, str]] | None
    listener: int
    token: str
    cookie: str
    worker: Worker


@dataclass(frozen=True)
class Answer:
    """A worker takes connections at `address`; None: it can't, for an error with an exit code. opened: the open round,
    as JSON: the parent does without what a server imports.
    """

    address: Address | None = None
    opened: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    code: int = 0


def serve_by_workers(
    artifacts: Path,
    state: Path,
    settings: ServerSettings,
    on_ready: OnReady,
    log: tuple[int, LogFormat, dict[str, str]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, in the main thread; on_ready hears once all workers take connections.

    log: of each worker, see Job. Raises ServerAddressError, TlsError, StorageError, WorkerError.
    """
    with contextlib.closing(Listener(settings)) as listener:
        claimed, folder_lock = claim(state), lock(state)
        try:
            worker, token, cookie = Worker(0, True, folder_lock), NewToken.make().text, secrets.token_hex(32)
            job = Job(artifacts, state, settings, log, listener.socket.fileno(), token, cookie, worker)
            _Workers(job, claimed).run(on_ready)
        finally:
            os.close(folder_lock)


class _Workers:
    def __init__(self, job: Job, claimed: Claim):
        self._job, self._claimed = job, claimed
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()
        self._starting = threading.Lock()  # while a process begins; none does once all stop
        self._answered = threading.Semaphore(0)  # for each worker that has begun, or could not
        self._error: WorkerError | None = None

    def run(self, on_ready: OnReady) -> None:
        with _at_signals(self._stop):
            first = self._start(0)
            answer = None if first is None else _answer_of(first)
            if answer is None or answer.address is None:
                self._claimed.undo()
                if first is not None and not self._stopping.is_set():
                    raise _error_of(0, first.wait(), answer)
                return
            self._job = replace(self._job, worker=replace(self._job.worker, alone=False))
            with answer.address.owner_file():
                others = ((number, None, None) for number in range(1, self._job.settings.workers))
                keepers = [threading.Thread(target=self._keep, args=one) for one in ((0, first, answer), *others)]
                for keeper in keepers:
                    keeper.start()
                try:
                    for _ in keepers:
                        self._answered.acquire()
                    on_ready(answer.address, answer.opened)
                    self._stopping.wait()
                finally:
                    self._stop()
                    for keeper in keepers:
                        keeper.join()
        if self._error is not None:
            raise self._error

    def _keep(self, number: int, process: "subprocess.Popen[bytes] | None", answer: Answer | None) -> None:
        """Have a worker until all stop. process, answer: its first one, if that takes connections."""
        deaths, failed = deque[float](maxlen=1000), 0
        while True:
            if process is None and (process := self._start(number)) is not None:
                answer = _answer_of(process)
            self._answered.release()
            if process is None:
                return
            code, now = process.wait(), time.monotonic()
            failed = failed + 1 if code > 0 and (answer is None or answer.address is None) else 0
            if self._stopping.is_set() or failed == MOST_FAILED_STARTS:
                self._end(_error_of(number, code, answer) if code > 0 else None)
                return
            facts = event("worker_ended", worker=number, code=code)
            log.warning("worker %d ended with code %d and is started again", number, code, extra=facts)
            process = None
            deaths.append(now)
            if self._stopping.wait(PAUSE_SECONDS * sum(death > now - REMEMBERED_SECONDS for death in deaths)):
                return

    def _start(self, number: int) -> "subprocess.Popen[bytes] | None":
        """A worker's process, which has its job; None if all stop."""
        job = replace(self._job, worker=replace(self._job.worker, number=number))
        path = os.pathsep.join(one or str(Path.cwd()) for one in sys.path)
        with self._starting:
            if self._stopping.is_set():
                return None
            with interrupts_held():  # a terminal sends Ctrl-C to all; they are told by SIGTERM
                process = self._running[number] = subprocess.Popen(
                    [sys.executable, "-m", "phonograd.server_agg.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=(job.listener, job.worker.lock),
                    env=os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
                )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already
            process.stdin.write(encoded(job))
            process.stdin.flush()
        return process

    def _end(self, error: WorkerError | None) -> None:
        self._error = self._error or error
        self._stop()

    def _stop(self) -> None:
        with self._starting:
            self._stopping.set()
            for process in self._running.values():
                process.terminate()


def encoded(value: Job | Answer) -> bytes:
    """A line for another process; not JSON, which has no infinity."""
    return msgspec.msgpack.encode(value, enc_hook=str).hex().encode() + b"\n"


def _answer_of(process: "subprocess.Popen[bytes]") -> Answer | None:
    """What a process says of its start; None if it died without a word."""
    assert process.stdout is not None
    with process.stdout as said:
        line = said.readline()
    return msgspec.msgpack.decode(bytes.fromhex(line.decode()), type=Answer) if line else None


def _error_of(number: int, code: int, answer: Answer | None) -> WorkerError:
    if answer is not None and answer.error:
        return WorkerError(answer.error, answer.code)
    return WorkerError(f"worker {number}: ended with code {code}; the log says why", code)


@contextlib.contextmanager
def _at_signals(call: Callable[[], object]) -> Iterator[None]:
    """While the block runs, SIGINT and SIGTERM call this, in a thread of its own: it may wait, and take locks.

    For the main thread.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    reading, writing = os.pipe()

    def wait() -> None:
        while os.read(reading, 1):
            call()

    os.set_blocking(writing, False)
    thread = threading.Thread(target=wait, name="signals")
    thread.start()
    told = signal.set_wakeup_fd(writing)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(told)
        os.close(writing)
        thread.join()
        os.close(reading)
