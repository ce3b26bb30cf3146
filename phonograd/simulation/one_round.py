"""One simulated round: phones train, updates arrive or do not, the next model is written."""

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import StoppedError, TrainingError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.simulation.folder import SimulationFolder
from phonograd.simulation.phone import PhoneJob, PhoneResult
from phonograd.simulation.records import Quality, RoundRecord
from phonograd.simulation.schedule import Participation
from phonograd.simulation.server import Arrival, NextModel, Student, close_round
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Population, text_slice
from phonograd.simulation.workers import Workers


@dataclass(frozen=True)
class RoundPlan:
    """A round to run: its phones and those of the round before, and the hashes of both rounds' base models.

    bytes_down: what its phones download, as `downloads` has it.
    """

    number: int
    parts: Sequence[Participation]
    base_sha256: str
    parts_before: Sequence[Participation]
    base_before_sha256: str
    bytes_down: int


# Called after each phone with their number so far; may raise StoppedError.
PhoneTrained = Callable[[int], None]


class OneRound:
    """Runs a round of a simulation."""

    def __init__(self, settings: SimulationSettings, population: Population, folder: SimulationFolder, plan: RoundPlan):
        self._settings = settings
        self._population = population
        self._folder = folder
        self._plan = plan
        self._base = folder.model(plan.number - 1)
        self._began = time.perf_counter()
        self._again = self._bytes_up = 0
        self._results: dict[str, PhoneResult] = {}

    def run(self, workers: Workers, trained: PhoneTrained, student: Student | None = None) -> NextModel:
        """Train all phones, aggregate what arrives, and write the model; a round with too few updates keeps its base
        model. While the server adds an update, phones after it train.

        student: for strategy transfer. Raises TrainingError if all phones diverged, and what `trained` raises.
        """
        number, settings = self._plan.number, self._settings.strategy
        files = self._folder.model(number)
        population = len(self._population.training)
        base_sha256 = self._plan.base_sha256
        how = self._settings.how_published
        with contextlib.closing(self._arriving(workers, trained)) as arrivals:
            closed = close_round(settings, number, self._base, base_sha256, arrivals, files, population, student, how)
        if closed.model is None:
            self._folder.repeat_model(number)
        return closed

    @property
    def folded(self) -> list[Path]:
        """The files of updates that no later round needs."""
        number = self._plan.number
        return [self._update(number, place) for place, part in enumerate(self._plan.parts) if not part.late]

    def record(self, closed: NextModel, epsilon: float | None, quality: Quality | None) -> RoundRecord:
        """The record of the round."""
        plan, losses, published = self._plan, self._losses, closed.published
        results = self._results.values()
        dropped = self._dropped
        return RoundRecord(
            number=plan.number,
            base_sha256=plan.base_sha256,
            model_sha256=plan.base_sha256 if closed.model is None else closed.model.sha256,
            outcome="failed" if closed.model is None else "closed",
            phones=len(results),
            accepted=closed.accepted,
            drop_outs=sum(part.drops_out for part in plan.parts),
            late=sum(part.late for part in plan.parts),
            refused=closed.refused + len(dropped),
            repeated=closed.repeated,
            diverged=sum(bool(result.diverged) for result in results),
            bytes_up=self._bytes_up + sum(arrival.path.stat().st_size for arrival in dropped),
            bytes_down=plan.bytes_down,
            tokens=sum(result.tokens for result in results),
            repeated_texts=self._again,
            loss_first=statistics.fmean(first for first, _ in losses) if losses else None,
            loss_last=self.loss,
            seconds=time.perf_counter() - self._began,
            train_seconds=math.fsum(result.seconds for result in results),
            epsilon=epsilon,
            quality=quality,
            link_bytes=None if published is None or published.link is None else published.link.nbytes,
            left_out=None if published is None else published.distance,
        )

    @property
    def loss(self) -> float | None:
        """Nats a token in the last step, the mean over the phones; None if nobody trained."""
        return statistics.fmean(last for _, last in self._losses) if self._losses else None

    @property
    def _losses(self) -> list[tuple[float, float]]:
        """The first and the last step's of each phone that trained."""
        return [result.losses for result in self._results.values() if not result.diverged]

    def _jobs(self) -> Iterator[PhoneJob]:
        plan = self._plan
        for place, part in enumerate(plan.parts):
            everything, least = self._population.training[part.user], self._population.least_tokens
            messages, again = text_slice(everything, self._settings.text_bytes, part.earlier, least)
            self._again += again
            path = self._update(plan.number, place)
            yield PhoneJob(
                part.user, messages, plan.number, self._base.weights, plan.base_sha256, part.sample_seed, path
            )

    def _update(self, number: int, place: int) -> Path:
        return self._folder.updates(number) / f"{place}.safetensors"

    def _arriving(self, workers: Workers, trained: PhoneTrained) -> Generator[Arrival, None, None]:
        """The updates that reach the server in this round: those of the round before that are late, then its own, each
        once its phone and those before it in the plan have trained. So their order does not depend on the workers.
        """
        if self._takes_late:
            yield from self._arrived(self._late)
        results = workers.train(self._jobs())
        for place, part in enumerate(self._plan.parts):
            while part.user not in self._results:
                result = next(results)
                self._results[result.user] = result
                trained(len(self._results))
            result = self._results[part.user]
            if result.diverged or part.drops_out or part.late:
                continue
            arrival = Arrival(part.user, self._update(self._plan.number, place), result.sha256)
            yield from self._arrived([arrival] * (2 if part.duplicate else 1))
        if self._results and not self._losses:
            raise TrainingError(next(iter(self._results.values())).diverged)

    def _arrived(self, arrivals: list[Arrival]) -> list[Arrival]:
        self._bytes_up += sum(arrival.path.stat().st_size for arrival in arrivals)
        return arrivals

    @property
    def _takes_late(self) -> bool:
        return self._settings.late == "next" and not self._settings.strategy.private

    @property
    def _dropped(self) -> list[Arrival]:
        """Late updates that the server refuses."""
        return [] if self._takes_late else self._late

    @property
    def _late(self) -> list[Arrival]:
        plan = self._plan
        same_base = plan.base_before_sha256 == plan.base_sha256
        its_base = None if same_base else self._folder.model(plan.number - 2).weights
        arrivals = []
        for place, part in enumerate(plan.parts_before):
            path = self._update(plan.number - 1, place)
            if part.late and path.exists():
                arrivals.append(Arrival(part.user, path, sha256_of_file(path), its_base))
        return arrivals


def stop_or_go_on(number: int, stop: Callable[[], int] | None) -> None:
    """Raise StoppedError if a signal asks to end."""
    signal = stop() if stop else 0
    if signal:
        raise StoppedError(f"interrupted in round {number}; run the same command to resume", signal)
