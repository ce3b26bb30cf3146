"""One simulated round: phones download and train, updates arrive or do not, the next model is written."""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.aggregation.next_model import Average, Student
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.simulation.folder import SimulationFolder
from phonograd.simulation.masked import about_masked
from phonograd.simulation.phone import PhoneJob, PhoneResult
from phonograd.simulation.quality import Quality
from phonograd.simulation.records import RoundRecord, SimulationRecord, deployed_number
from phonograd.simulation.schedule import Participation
from phonograd.simulation.server import Arrival, ClosedRound, close_round
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Population, text_slice
from phonograd.simulation.workers import Workers

# Called after each phone with their number so far; may raise StoppedError.
PhoneTrained = Callable[[int], None]


@dataclass
class OneRound:
    """The round after those of a record: `parts` of its phones, and of those of the round before. held: as in
    `bytes_down`.
    """

    settings: SimulationSettings
    population: Population
    folder: SimulationFolder
    before: SimulationRecord
    parts: Sequence[Participation]
    parts_before: Sequence[Participation]
    held: Mapping[str, int]

    def __post_init__(self) -> None:
        rounds = self.before.rounds
        self.number = len(rounds) + 1
        # Phones train from the model of round `base`, those of the round before from that of `_base_before`. The
        # server's own is the mean of the rounds since.
        self.base, self._base_before = deployed_number(rounds), deployed_number(rounds[:-1])
        self._averaged = sum(ended.outcome == "closed" for ended in rounds[self.base :])
        self._deploys = self._averaged + 1 >= self.settings.deploy_every
        self._model = self.folder.model(self.base)
        self._base_sha256 = self.before.model_sha256(self.base)
        self._same_base = self._base_sha256 == self.before.model_sha256(self._base_before)
        self._began = time.perf_counter()
        self._again = self._bytes_up = 0
        self._results: dict[str, PhoneResult] = {}

    def run(self, workers: Workers, trained: PhoneTrained, student: Student | None = None) -> ClosedRound:
        """Train all phones, aggregate what arrives, and write the model; a round with too few updates keeps its base
        model. While the server adds an update, phones after it train.

        student: for strategy transfer. Raises TrainingError if all phones diverged, and what `trained` raises.
        """
        settings, before = self.settings, self.folder.model(self.number - 1)
        with contextlib.closing(self._arriving(workers, trained)) as arrivals:
            closed = close_round(
                settings.strategy,
                self.number,
                dataclasses.replace(self._model, optimizer=before.optimizer),
                self._base_sha256,
                arrivals,
                self.folder.model(self.number),
                len(self.population.training),
                student,
                settings.how_published if self._deploys else None,
                settings.masked,
                settings.clients_per_round,
                Average(before.weights, self._averaged) if self._averaged else None,
            )
        if closed.published is None:
            self.folder.repeat_model(self.number)
        return closed

    @property
    def folded(self) -> list[Path]:
        """The files of updates that no later round needs."""
        return [self._update(self.number, place) for place, part in enumerate(self.parts) if not part.late]

    def record(self, closed: ClosedRound, epsilon: float | None, quality: Quality | None) -> RoundRecord:
        """The record of the round."""
        published, results = closed.published, self._results.values()
        dropped = [] if self._takes_late else self._late
        return RoundRecord(
            number=self.number,
            base_sha256=self._base_sha256,
            model_sha256=self.before.model_sha256(self.number - 1) if published is None else published.model.sha256,
            outcome="failed" if published is None else "closed",
            phones=len(results),
            accepted=closed.accepted,
            drop_outs=sum(part.drops_out for part in self.parts),
            late=sum(part.late for part in self.parts),
            refused=len(closed.refusals) + len(dropped),
            repeated=closed.repeated,
            diverged=sum(bool(result.diverged) for result in results),
            bytes_up=self._bytes_up + sum(self._bytes_of(arrival) for arrival in dropped),
            bytes_down=bytes_down(self.parts, self.held, self.before.rounds, self._model.weights.stat().st_size),
            tokens=sum(result.tokens for result in results),
            repeated_texts=self._again,
            loss_first=self.loss(0),
            loss_last=self.loss(-1),
            seconds=time.perf_counter() - self._began,
            train_seconds=math.fsum(result.seconds for result in results),
            epsilon=epsilon,
            quality=quality,
            link_bytes=None if published is None or published.link is None else published.link.nbytes,
            left_out=None if published is None else published.distance,
            deployed=self._deploys and published is not None,
        )

    def loss(self, step: Literal[0, -1]) -> float | None:
        """Nats a token in the first or the last step, the mean over the phones; None if nobody trained."""
        return statistics.fmean(losses[step] for losses in self._losses) if self._losses else None

    @property
    def _losses(self) -> list[tuple[float, float]]:
        return [result.losses for result in self._results.values() if not result.diverged]

    def _jobs(self) -> Iterator[PhoneJob]:
        for place, part in enumerate(self.parts):
            everything, least = self.population.training[part.user], self.population.least_tokens
            messages, again = text_slice(everything, self.settings.text_bytes, part.earlier, least)
            self._again += again
            path = self._update(self.number, place)
            yield PhoneJob(
                part.user, messages, self.number, self._model.weights, self._base_sha256, part.sample_seed, path
            )

    def _update(self, number: int, place: int) -> Path:
        return self.folder.updates(number) / f"{place}.safetensors"

    def _arriving(self, workers: Workers, trained: PhoneTrained) -> Generator[Arrival, None, None]:
        """The updates that reach the server in this round: those of the round before that are late, then its own, each
        once its phone and those before it in the plan have trained. So their order does not depend on the workers.
        """
        if self._takes_late:
            yield from self._count_arrivals(self._late)
        results = workers.train(self._jobs())
        for place, part in enumerate(self.parts):
            while part.user not in self._results:
                result = next(results)
                self._results[result.user] = result
                trained(len(self._results))
            result = self._results[part.user]
            if result.diverged or part.drops_out or part.late:
                continue
            arrival = Arrival(part.user, self._update(self.number, place), result.sha256)
            yield from self._count_arrivals([arrival] * (2 if part.duplicate else 1))
        if self._results and not self._losses:
            raise TrainingError(next(iter(self._results.values())).diverged)

    def _count_arrivals(self, arrivals: list[Arrival]) -> list[Arrival]:
        self._bytes_up += sum(self._bytes_of(arrival) for arrival in arrivals)
        return arrivals

    def _bytes_of(self, arrival: Arrival) -> int:
        if self.settings.masked is None:
            return arrival.path.stat().st_size
        about = about_masked(self.settings.masked, self._model.weights)
        return (about.values * about.width + 7) // 8

    @property
    def _takes_late(self) -> bool:
        """Whether updates of the round before count: always while phones have the same model."""
        if self.settings.strategy.private or self.settings.masked is not None:
            return False
        return self.settings.late == "next" or self._same_base

    @property
    def _late(self) -> list[Arrival]:
        its_base = None if self._same_base else self.folder.model(self._base_before).weights
        arrivals = []
        for place, part in enumerate(self.parts_before):
            path = self._update(self.number - 1, place)
            if part.late and path.exists():
                arrivals.append(Arrival(part.user, path, sha256_of_file(path), its_base))
        return arrivals


# What phones download before they train is one rule of simulations, and what `train --server` does: every phone has the
# first model, which came with the app. Who takes part in a round downloads its base model: as links from the model that
# it had last, where the server keeps them and they are smaller together than the model, else whole.
def bytes_down(
    parts: Sequence[Participation], held: Mapping[str, int], rounds: Sequence[RoundRecord], model_bytes: int
) -> int:
    """Bytes that the phones of the round after `rounds` download, all together.

    held: by user, the round whose model the phone had last; 0, the first one, if it is not there. model_bytes: of the
    base model's file.
    """
    return sum(_of_phone(rounds[held.get(part.user, 0) :], model_bytes) for part in parts)


def _of_phone(behind: Sequence[RoundRecord], model_bytes: int) -> int:
    """Bytes for a phone that lacks the models of these rounds."""
    links = [ended.link_bytes for ended in behind if ended.outcome == "closed" and ended.deployed]
    known = [nbytes for nbytes in links if nbytes is not None]
    most = ServerSettings().links_kept
    if len(known) < len(links) or (most is not None and len(links) > most):
        return model_bytes
    return min(sum(known), model_bytes)
