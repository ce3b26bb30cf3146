"""Phones simulated by Ray's workers: actors, each of which trains and evaluates one phone after another."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import ray

from phonograd.adapters.ray.cluster import RETRIES, cluster, result
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.simulation.phone import EvaluationJob, PhoneJob, PhoneResult, VirtualPhone
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Messages


class RayWorkers:
    """`count` actors of one thread each. Ray starts an actor whose process was killed again, and repeats its job.

    An update is written atomically and its bytes follow from the job, so a repeated job changes nothing. All machines
    of the cluster need the artifacts and the simulation's folder at the same paths.
    """

    def __init__(self, count: int, artifacts: Artifacts, rehearsal: Messages, settings: SimulationSettings):
        self.count = count
        self._parts = dataclasses.replace(artifacts, folder=artifacts.folder.resolve()), rehearsal, settings
        self._kept = contextlib.ExitStack()
        self._shared: list[Any] = []
        self._actors: list[Any] = []

    def __enter__(self) -> "RayWorkers":
        rehearsal_bytes = sum(map(len, self._parts[1]))
        self._kept.enter_context(cluster(self.count, 2 * rehearsal_bytes))
        self._shared = [ray.put(part) for part in self._parts]
        self._actors = [_ACTOR.remote() for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            ray.kill(actor)  # its work is lost quietly; at a shutdown Ray would print an error for each job
        self._actors, self._shared = [], []
        self._kept.close()

    def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
        """See Workers."""
        left = iter(jobs)
        free = [actor for actor in self._actors for _ in range(2)]  # a job waits at each while it trains
        waiting: dict[Any, Any] = {}  # the actor that has the job, by what it will return
        while True:
            for job in islice(left, len(free)):
                actor = free.pop()
                there = dataclasses.replace(job, base=job.base.resolve(), update=job.update.resolve())
                waiting[actor.train.remote(self._shared, there)] = actor
            if not waiting:
                return
            (ended, *_), _ = ray.wait(list(waiting))
            free.append(waiting.pop(ended))
            yield result(ended)

    def evaluate(self, jobs: Sequence[EvaluationJob]) -> list[Evaluation]:
        """See Workers."""
        there = [dataclasses.replace(job, weights=job.weights.resolve()) for job in jobs]
        references = [
            actor.evaluate.remote(self._shared, job) for actor, job in zip(cycle(self._actors), there, strict=False)
        ]
        return [result(reference) for reference in references]


class _Phone:
    """A phone in an actor. shared: references to what a VirtualPhone takes, which come with each job, because Ray
    may start the actor again at any time.
    """

    def __init__(self) -> None:
        self._phone: VirtualPhone | None = None

    def train(self, shared: Sequence[Any], job: PhoneJob) -> PhoneResult:
        return self._open_phone(shared).train(job)

    def evaluate(self, shared: Sequence[Any], job: EvaluationJob) -> Evaluation:
        return self._open_phone(shared).evaluate(job)

    def _open_phone(self, shared: Sequence[Any]) -> VirtualPhone:
        if self._phone is None:
            self._phone = VirtualPhone(*ray.get(shared))
        return self._phone


_ACTOR: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=RETRIES)(_Phone)
