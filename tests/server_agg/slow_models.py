"""A slow strategy whose work a test holds in its hand: no engine, no minutes."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import StoppedError
from phonograd.device_runtime.formats.tensor_file import WrittenFile, load_tensors, save_tensors
from phonograd.server_agg.aggregation.next_model import Student
from phonograd.server_agg.aggregation.strategy import ClientUpdate
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.slow_closing import Students
from phonograd.server_agg.transfer.settings import TransferSettings
from phonograd.server_agg.transfer.teachers import write_teacher
from tests.server_agg.coordinators import send
from tests.server_agg.workshop import Workshop
from tests.support.waiting import PATIENCE_SECONDS, until

PARTS = 4


@dataclass
class Work(Students):
    """Makes the mean of a round's updates in PARTS steps, each of which waits for `allow`.

    Its work file has one line for each finished part, as transfer learning's has: later work goes on from there.
    errors: raised, one a call, before the first part. parts: those that all calls have made. at_part: called within
    each, before it counts.
    """

    allowed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    errors: list[Exception] = field(default_factory=list)
    jobs: int = 0
    required: list[TransferSettings] = field(default_factory=list)
    parts: int = 0
    at_part: Callable[[int], None] = lambda part: None

    def allow(self, parts: int = PARTS) -> None:
        for _ in range(parts):
            self.allowed.release()

    def require(self, settings: TransferSettings) -> None:
        self.required.append(settings)

    def student(
        self, settings: TransferSettings, work: Path, progress: Callable[[int, int], None], stop: Callable[[], int]
    ) -> Student:
        def make(updates: Sequence[ClientUpdate], base: Path, out: Path, metadata: Mapping[str, str]) -> WrittenFile:
            self.jobs += 1
            if self.errors:
                raise self.errors.pop(0)
            done = work / "done"
            finished = len(done.read_text()) if done.exists() else 0
            progress(finished, PARTS)
            for part in range(finished, PARTS):
                self._wait(stop)
                self.part(done, part)
                progress(part + 1, PARTS)
            return _write_mean(updates, base, out, metadata)

        return make

    def part(self, done: Path, number: int) -> None:
        """Make a part, and note in the work file that it is made."""
        self.at_part(number)
        done.write_text("x" * (number + 1))
        self.parts += 1

    def _wait(self, stop: Callable[[], int]) -> None:
        for _ in range(int(PATIENCE_SECONDS / 0.01)):
            if stop():
                raise StoppedError("stopped", 15)
            if self.allowed.acquire(timeout=0.01):
                if not stop():
                    return
                self.allowed.release()  # it was for the work that comes after this
        raise AssertionError("nothing was allowed")


def _write_mean(updates: Sequence[ClientUpdate], base: Path, out: Path, metadata: Mapping[str, str]) -> WrittenFile:
    trained = []
    for update in updates:
        write_teacher(update, base, out)
        trained.append(load_tensors(out))
    mean = {name: np.mean([weights[name] for weights in trained], axis=0, dtype=np.float64) for name in trained[0]}
    return save_tensors(out, {name: values.astype(np.float32) for name, values in mean.items()}, metadata)


def free_work() -> Work:
    """Work that nothing holds up."""
    work = Work()
    work.allow(1000)
    return work


def send_two(workshop: Workshop, coordinator: Coordinator) -> None:
    send(coordinator, workshop.update(1), "a")
    send(coordinator, workshop.update(2), "b")


def model_after(coordinator: Coordinator, number: int = 1) -> str:
    """The model that the round after `number` begins with."""
    until(lambda: coordinator.current.round > number, "the next round")
    coordinator.tick()  # waits until the round's files are deleted, too
    return coordinator.current.base_sha256
