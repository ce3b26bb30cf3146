"""What trains and evaluates: this process or several, which map the same base weights, so that memory has them once."""

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol, TypeVar

from phonograd.device_runtime.base.errors import OutOfMemoryError, StoppedError
from phonograd.device_runtime.base.system import end_with_parent, interrupts_held
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.simulation.phone import EvaluationJob, PhoneJob, PhoneResult, VirtualPhone
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Messages

_phone: VirtualPhone  # of a worker process

Job = TypeVar("Job")
Result = TypeVar("Result")


class Workers(contextlib.AbstractContextManager["Workers"], Protocol):
    """Train and evaluate. Use as a context."""

    @property
    def count(self) -> int:
        """Jobs that run at the same time."""

    def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
        """Train phones; results come as they end, and few jobs are asked for ahead, so that memory does not grow with
        their number. Raises what `VirtualPhone.train` raises.
        """

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        """Evaluate; results in the order of the jobs. Raises what `VirtualPhone.evaluate` raises."""


# From how many, the artifacts, the general messages to rehearse, and the settings.
StartWorkers = Callable[[int, Artifacts, Messages, SimulationSettings], Workers]


def start_workers(count: int, artifacts: Artifacts, rehearsal: Messages, settings: SimulationSettings) -> Workers:
    """Workers of one thread each: this process if `count` is 1, else as many others."""
    if count == 1:
        return _ThisProcess(VirtualPhone(artifacts, rehearsal, settings))
    return _Processes(count, artifacts, rehearsal, settings)


class _ThisProcess(contextlib.AbstractContextManager["_ThisProcess"]):
    count = 1

    def __init__(self, phone: VirtualPhone):
        self._phone = phone

    def __exit__(self, *_: object) -> None:
        self._phone.close()

    def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
        return map(self._phone.train, jobs)

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        return [self._phone.evaluate(job) for job in jobs]


class _Processes(contextlib.AbstractContextManager["_Processes"]):
    """A pool of processes. If SIGKILL ends one, that is an OutOfMemoryError; for other signals, a StoppedError."""

    def __init__(self, count: int, artifacts: Artifacts, rehearsal: Messages, settings: SimulationSettings):
        self.count = count
        context = multiprocessing.get_context("spawn")  # a fork would copy threads' locks
        ended, self._going_on = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(count, context, _start, (ended, artifacts, rehearsal, settings))
        self._processes: set[BaseProcess] = set()  # all that were started; the pool doesn't tell

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._going_on.close()  # nobody waits for what runs
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._going_on.close()

    def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
        left = iter(jobs)
        waiting: set[Future[PhoneResult]] = set()
        while True:
            waiting |= {self._submit(_train, job) for job in islice(left, 2 * self.count - len(waiting))}
            if not waiting:
                return
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from map(self._result, ended)

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        return [self._result(future) for future in [self._submit(_evaluate, job) for job in jobs]]

    def _submit(self, work: Callable[[Job], Result], job: Job) -> "Future[Result]":
        try:
            with interrupts_held():  # it may start a process
                future = self._pool.submit(work, job)
        except BrokenProcessPool as error:
            raise self._killed_error() from error
        self._processes.update(multiprocessing.active_children())
        return future

    def _result(self, future: "Future[Result]") -> Result:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise self._killed_error() from error

    def _killed_error(self) -> OutOfMemoryError | StoppedError:
        self._pool.shutdown(wait=True)
        ended = {-(process.exitcode or 0) for process in self._processes}
        # A pool that lost a worker ends the others by SIGTERM.
        number = max((code for code in ended - {signal.SIGTERM} if code > 0), default=signal.SIGTERM)
        if number == signal.SIGKILL:
            return OutOfMemoryError(
                "a worker process was killed by SIGKILL, most likely for lack of memory; use fewer `workers`; "
                "run the same command to resume"
            )
        return StoppedError(
            f"a worker process was ended by {signal.Signals(number).name}; run the same command to resume", number
        )


def _start(ended: Connection, artifacts: Artifacts, rehearsal: Messages, settings: SimulationSettings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    end_with_parent(ended)
    global _phone  # noqa: PLW0603  # a process has one
    _phone = VirtualPhone(artifacts, rehearsal, settings)


def _train(job: PhoneJob) -> PhoneResult:
    return _phone.train(job)


def _evaluate(job: EvaluationJob) -> Evaluation:
    return _phone.evaluate(job)
