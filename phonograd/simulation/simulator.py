"""Runs a simulation, round by round."""

import contextlib
import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import StoppedError, TrainingError, UsageError, WeightsError
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.server_agg.aggregation.next_model import Student
from phonograd.server_agg.aggregation.privacy import budget
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, epsilon_upper_bound
from phonograd.server_agg.aggregation.strategy import ClientUpdate
from phonograd.server_agg.settings.noise import CoveringNoise, covering_noise
from phonograd.server_agg.transfer.closing import transfer
from phonograd.server_agg.transfer.text import read_general
from phonograd.simulation.folder import SimulationFolder, job_of, require_same_job
from phonograd.simulation.masked import about_masked
from phonograd.simulation.one_round import OneRound
from phonograd.simulation.phone import EvaluationJob
from phonograd.simulation.quality import Quality, spread
from phonograd.simulation.records import RoundRecord, SimulationRecord, Users, deployed_number
from phonograd.simulation.schedule import Participation, require_rested, schedule
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Messages, Population, least_tokens, populate, text_slice
from phonograd.simulation.workers import StartWorkers, Workers, start_workers

# Called with (phones done, phones in all rounds, last quality).
Progress = Callable[[int, int, str], None]

OnNoise = Callable[[CoveringNoise], None]


@dataclass(frozen=True)
class Texts:
    """The texts of a simulation. users: by name; rehearsal: general messages that phones mix in, or none; general_test:
    general messages to evaluate on, or none.
    """

    users: dict[str, Messages]
    rehearsal: Messages
    general_test: Messages


class Simulation(contextlib.AbstractContextManager["Simulation"]):
    """A simulation in its folder, new or resumed. Use it as a context.

    workers: how many phones train at a time, each in a process with one thread; the result does not depend on their
    number. start: starts them. absent: users who are enrolled and never take part. on_noise, config: as
    in `phonograd.simulate`. Raises TextError if nobody can train, UsageError if too few may, StateError for a folder of
    another simulation, StorageError.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        texts: Texts,
        settings: SimulationSettings,
        folder: Path,
        workers: int,
        start: StartWorkers = start_workers,
        absent: frozenset[str] = frozenset(),
        on_noise: OnNoise | None = None,
        config: Mapping[str, Any] | None = None,
    ):
        self._artifacts = artifacts
        self._settings = settings
        self._texts = texts
        self._count = workers
        self._start = start
        self._absent = absent
        self._config = None if config is None else dict(config)
        self._general: Messages | None = None  # the text that strategy transfer's student learns on
        if settings.strategy.slow:
            artifacts.require_distill()
            self._general = read_general(settings.transfer)
        self.population = population_of(artifacts, texts, settings, settings.test_users)
        require_rested(settings, sorted(self.population.training))
        if on_noise is not None:
            place, enrolled = artifacts.path(WEIGHTS), len(self.population.training)
            phones = settings.clients_per_round
            noise = covering_noise(place, settings.strategy, enrolled, phones, settings.masked)
            if noise is not None:
                on_noise(noise)
        with contextlib.ExitStack() as resources:
            self._folder = SimulationFolder(folder, artifacts.path(WEIGHTS))
            resources.callback(self._folder.close)
            self._record = self._folder.load()
            self._job = self._identify()
            if self._record is not None:
                require_same_job(self._record, self._job, folder)
                if (held := len(self._record.rounds)) > settings.rounds:
                    raise UsageError(
                        f"`rounds` {settings.rounds}: {folder} holds {held} rounds already; ask for as many or "
                        "more, or use another folder"
                    )
                for number in {held, deployed_number(self._record.rounds)}:
                    self._folder.require_model(number, self._record.model_sha256(number))
                self._folder.tidy(held, deployed_number(self._record.rounds[:-1]))
            self._resources = resources.pop_all()

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _identify(self) -> dict[str, Any]:
        texts, general, absent = self._texts, self._general, self._absent
        users = (part for user in sorted(texts.users) for part in (user.encode(), *texts.users[user], b""))
        return job_of(
            self._settings,
            model=self._artifacts.weights_sha256,
            training=document_of(self._artifacts.manifest.training),
            users=_hash(users),
            rehearsal=_hash(texts.rehearsal),
            general_test=_hash(texts.general_test),
            **({} if general is None else {"general": _hash(general)}),
            **({"absent": _hash(sorted(user.encode() for user in absent))} if absent else {}),
        )

    def run(self, progress: Progress | None = None, stop: Callable[[], int] | None = None) -> SimulationRecord:
        """Run the rounds that are left.

        stop: asked after each phone for the number of a signal that asks to end, 0 for none. Raises StoppedError then,
        TrainingError (with the round, the loss and the last good model) if training diverges, StorageError,
        OutOfMemoryError.
        """
        if self._record is not None:
            self._record = msgspec.structs.replace(self._record, config=self._config)
        with self._start(self._count, self._artifacts, self._texts.rehearsal, self._settings) as workers:
            record = self._record or self._begin(workers)
            parts = schedule(self._settings, sorted(self.population.training))
            before: Sequence[Participation] = ()
            held: dict[str, int] = {}  # by user, the round whose model the phone has
            for number in range(1, self._settings.rounds + 1):
                taking_part = [part for part in next(parts) if part.user not in self._absent]
                if number > len(record.rounds):
                    round_ = OneRound(self._settings, self.population, self._folder, record, taking_part, before, held)
                    ended = self._run(round_, workers, progress, stop)
                    self._record = record = msgspec.structs.replace(record, rounds=(*record.rounds, ended))
                    self._folder.save(record)
                    self._folder.tidy(number, round_.base, round_.folded)
                before = taking_part
                held |= {part.user: number - 1 for part in taking_part}
        return record

    def model(self, number: int) -> Path:
        """The weights after a round: the last are kept, and those that its phones had; 0 is the first model."""
        return self._folder.model(number).weights

    def _begin(self, workers: Workers) -> SimulationRecord:
        population = self.population
        users = Users(len(population.training), len(population.testing), len(population.left_out))
        self._record = SimulationRecord(self._job, users, self._measure(workers, 0), config=self._config)
        self._folder.save(self._record)
        return self._record

    def _run(
        self, round_: OneRound, workers: Workers, progress: Progress | None, stop: Callable[[], int] | None
    ) -> RoundRecord:
        number, rounds, K = round_.number, self._settings.rounds, self._settings.clients_per_round

        def report_trained(phones: int) -> None:
            if stop is not None and (signal := stop()):
                raise StoppedError(f"interrupted in round {number}; run the same command to resume", signal)
            if progress is not None:
                progress((number - 1) * K + min(phones, K), rounds * K, self._note())

        try:
            closed = round_.run(workers, report_trained, self._student(number, progress, stop))
            last = rounds - self._settings.evaluate_last
            due = number > last or number % self._settings.evaluate_every == 0
            measured = self._measure(workers, number) if due else None
        except (TrainingError, WeightsError) as error:
            loss = round_.loss(-1)
            at = f"round {number}" if loss is None else f"round {number} (loss {loss:.4g} nats a token)"
            raise TrainingError(f"{at}: {error}; the last good model is {self.model(number - 1)}") from error
        if progress is not None:
            progress(number * K, rounds * K, self._note())
        # Accounting for little noise takes seconds a round.
        return round_.record(closed, self._epsilon(number) if due else None, measured)

    def _student(self, number: int, progress: Progress | None, stop: Callable[[], int] | None) -> Student | None:
        """What trains the model of a round of strategy transfer, while no phone trains."""
        if not self._settings.strategy.slow:
            return None
        phones = self._settings.clients_per_round

        def show_transfer(done: int, total: int) -> None:
            if progress is not None:
                progress(number * phones, self._settings.rounds * phones, f"transfer learning {100 * done // total} %")

        def train(updates: Sequence[ClientUpdate], base: Path, out: Path, metadata: Mapping[str, str]) -> WrittenFile:
            work, settings = self._folder.folder / "transfer", self._settings.transfer
            written = transfer(
                self._artifacts,
                base,
                updates,
                settings,
                self._general,
                work,
                out,
                metadata,
                show_transfer,
                stop,
                self._count,
            )
            shutil.rmtree(work)
            return written

        return train

    def _measure(self, workers: Workers, number: int) -> Quality:
        """Evaluate the model after a round with all workers. Raises TrainingError if it diverged."""
        general, testing = self._texts.general_test, self.population.testing.values()
        texts = [text_slice(messages, self._settings.text_bytes, 0)[0] for messages in testing]
        if general:
            texts.insert(0, general)  # the longest first, so that workers end together
        found = workers.evaluate([EvaluationJob(self.model(number), text) for text in texts])
        for evaluation in found:
            if not math.isfinite(evaluation.perplexity + evaluation.perplexity_with_unknown):
                raise TrainingError("the model's perplexity is not finite: training diverged; lower the learning rate")
        return Quality(found.pop(0) if general else None, tuple(found))

    def _epsilon(self, number: int) -> float | None:
        strategy, masked = self._settings.strategy, self._settings.masked
        if masked is not None and masked.distributed_noise:
            phones = self._settings.clients_per_round
            about = about_masked(masked, self.model(0))
            rounds = PrivateRounds(1.0, masked.effective_noise(about, phones, phones), number)
            return epsilon_upper_bound([rounds], strategy.delta)
        if not strategy.private or strategy.noise_multiplier == 0:
            return None
        spent = budget.privacy_spent_including([strategy] * (number - 1), strategy)
        return spent.epsilon if math.isfinite(spent.epsilon) else None

    def _note(self) -> str:
        assert self._record is not None
        *_, last = self._record.qualities.values()
        parts = []
        if last.general is not None:
            parts.append(
                f"general {last.general.perplexity:.1f} ({last.general.perplexity_with_unknown:.1f} with <unk>)"
            )
        if users := spread(last.users, "perplexity"):
            parts.append(f"users {users.pooled:.1f} ± {users.error:.1f}")
        return ", ".join(parts)


def population_of(artifacts: Artifacts, texts: Texts, settings: SimulationSettings, test_users: int) -> Population:
    """Users by what they do; those whose text does not fill a window are left out. Raises TextError."""
    manifest = artifacts.manifest
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), manifest.model.vocabulary)
    least = least_tokens(manifest.training, settings.user_share, texts.rehearsal)
    return populate(texts.users, vocabulary, least, test_users, settings.seed)


def _hash(messages: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        digest.update(message + b"\n")
    return digest.hexdigest()
