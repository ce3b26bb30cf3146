"""One simulated round: phones train, updates arrive or do not, the next model is written."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
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
        self._again = 0
        self._results: dict[str, PhoneResult] = {}

    def train(self, workers: Workers, trained: PhoneTrained) -> None:
        """Train all phones. Raises TrainingError if all diverged, and what `trained` raises."""
        for result in workers.train(self._jobs()):
            self._results[result.user] = result
            trained(len(self._results))
        if self._results and not self._losses:
            raise TrainingError(next(iter(self._results.values())).diverged)

    def close(self, student: Student | None = None) -> NextModel:
        """Aggregate what arrived and write the model; a round with too few updates keeps its base model.

        student: for strategy transfer.
        """
        number, settings = self._plan.number, self._settings.strategy
        files = self._folder.model(number)
        population = len(self._population.training)
        base_sha256 = self._plan.base_sha256
        how = self._settings.how_published
        closed = close_round(settings, number, self._base, base_sha256, self._arrivals, files, population, student, how)
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
        arrived = [*self._arrivals, *self._dropped]
        return RoundRecord(
            number=plan.number,
            base_sha256=plan.base_sha256,
            model_sha256=plan.base_sha256 if closed.model is None else closed.model.sha256,
            outcome="failed" if closed.model is None else "closed",
            phones=len(results),
            accepted=closed.accepted,
            drop_outs=sum(part.drops_out for part in plan.parts),
            late=sum(part.late for part in plan.parts),
            refused=closed.refused + len(self._dropped),
            repeated=closed.repeated,
            diverged=sum(bool(result.diverged) for result in results),
            bytes_up=sum(arrival.path.stat().st_size for arrival in arrived),
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

    @property
    def _arrivals(self) -> list[Arrival]:
        """The updates that reach the server in this round: those of the round before that are late, then its own."""
        arrivals = self._late if self._settings.late == "next" and not self._settings.strategy.private else []
        for place, part in enumerate(self._plan.parts):
            result = self._results[part.user]
            if result.diverged or part.drops_out or part.late:
                continue
            arrival = Arrival(part.user, self._update(self._plan.number, place), result.sha256)
            arrivals += [arrival] * (2 if part.duplicate else 1)
        return arrivals

    @property
    def _dropped(self) -> list[Arrival]:
        """Late updates that the server refuses."""
        return [] if self._settings.late == "next" and not self._settings.strategy.private else self._late

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
