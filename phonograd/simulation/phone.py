"""One virtual phone: what `phonograd train` does, for a worker process that trains many in turn."""

from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.text.evaluation import Evaluation, evaluate
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Messages


@dataclass(frozen=True)
class PhoneJob:
    """A phone's training: `messages` of `user`, from model `base`, in round `number`; the update goes to `update`."""

    user: str
    messages: Messages
    number: int
    base: Path
    base_sha256: str
    sample_seed: int
    update: Path


@dataclass(frozen=True)
class PhoneResult:
    """What a phone's training left. losses: nats a token of the first and the last step. An update that diverged has no
    file: `diverged` says how.
    """

    user: str
    sha256: str = ""
    tokens: int = 0
    losses: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.0
    diverged: str = ""


@dataclass(frozen=True)
class EvaluationJob:
    """A text to evaluate model `weights` on."""

    weights: Path
    text: Messages


class VirtualPhone:
    """Trains and evaluates with one thread; holds what all its jobs share. rehearsal: general messages, or none."""

    def __init__(self, artifacts: Artifacts, rehearsal: Messages, settings: SimulationSettings):
        self._artifacts = artifacts
        self._rehearsal = b"\n".join(rehearsal)
        self._settings = settings
        self._evaluator: tuple[Path, NativeBackend] | None = None  # kept open from text to text
        self._vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)

    def train(self, job: PhoneJob) -> PhoneResult:
        """Train and write the update: the bytes that `phonograd train --phone USER` writes.

        Raises TextError, WeightsError, StorageError.
        """
        settings = self._settings
        self.close()
        round_settings = RoundSettings(
            folder=self._artifacts.folder,
            user=b"\n".join(job.messages),
            rehearsal=self._rehearsal or None,
            user_share=settings.user_share,
            weights=job.base,
            weights_sha256=job.base_sha256,
            epochs=settings.epochs,
            steps=settings.steps,
            learning_rate=settings.learning_rate,
            output_sample=settings.output_sample,
            sample_seed=None if settings.output_sample is None else job.sample_seed,
            round_number=job.number,
            seed=seed_of(job.base_sha256, job.number, job.user),
            update=job.update,
            codec=settings.codec,
            masked=None if settings.masked is None else settings.masked.text,
            max_unknown=1.0,
            options=BackendOptions(threads=1, precision=settings.precision),
        )
        try:
            with Round(round_settings) as round_:
                trained = round_.train()
        except TrainingError as error:
            return PhoneResult(job.user, diverged=str(error))
        assert trained.update is not None
        report = trained.report
        ends = report.losses[0], report.losses[-1]
        return PhoneResult(job.user, trained.update.sha256, report.tokens, ends, report.seconds)

    def evaluate(self, job: EvaluationJob) -> Evaluation:
        """Evaluate the model on the text. Raises TrainingError if its scores are not finite."""
        training = self._artifacts.manifest.training
        if self._evaluator is None or self._evaluator[0] != job.weights:
            self.close()
            options = BackendOptions(threads=1)
            self._evaluator = job.weights, NativeBackend(self._artifacts, job.weights, options)
        model = self._evaluator[1]
        return evaluate(model, self._vocabulary, job.text, training.minibatch, training.bptt, self._settings.kss)

    def close(self) -> None:
        """Free the model that texts were evaluated with."""
        if self._evaluator is not None:
            self._evaluator[1].close()
            self._evaluator = None
