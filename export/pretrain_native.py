"""Pre-training in the native engine: parts of the text, each a round of its own, whose weights go from file to file.

A part is what fits one output sample: another one is drawn for each, so that no words are favoured. Recurrent states
start at zero in each part.
"""

import math
import time

from msgspec.structs import replace

from phonograd.device_runtime.base.errors import MissingExtraError, StoppedError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.engine.backend import MAX_THREADS, BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from phonograd.device_runtime.text.evaluation import evaluate
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export.pretrain_config import Perplexities
from phonograd.export.pretrain_state import PretrainState
from phonograd.export.pretrain_trainer import Heard, Job, Stop
from phonograd.export.torch_layout import seeded_weights

ARTIFACTS = "artifacts"


class NativeTrainer:
    """See Trainer. Not thread-safe. Raises MissingExtraError where a new run finds nothing to make its graphs with."""

    def __init__(self, job: Job, state: PretrainState):
        self._job, self._config, self._state = job, job.config, state
        self._tokens = job.config.minibatch * job.config.bptt  # of a step
        self._threads = job.config.threads or min(usable_cores(), MAX_THREADS)
        self.windows = len(job.corpus.training) // self._tokens
        self._teacher = None if job.teacher is None else job.teacher.folder
        self._artifacts = self._export()
        self._weights = state.weights(state.steps) if state.steps else self._artifacts.path(WEIGHTS)
        self._sha256 = ""

    def _export(self) -> Artifacts:
        folder = self._state.weights(0).with_name(ARTIFACTS)
        if folder.exists():
            return open_artifacts(folder)
        try:
            from phonograd.export.artifacts import export_artifacts  # noqa: PLC0415  # a resumed run needs no onnx
        except MissingExtraError as error:
            raise MissingExtraError(f"{error}; or choose backend torch, which needs torch alone") from error
        config, model = self._config, self._job.model
        names = ("minibatch", "bptt", "learning_rate", "clip_norm", "dropout")
        training = TrainingConfig(**{name: getattr(config, name) for name in names})
        teacher = self._job.teacher
        if teacher is not None:
            training = replace(training, loss="lwf", user_share=config.text_share)
        return export_artifacts(
            *(folder, model, training, seeded_weights(model, config.seed), self._job.vocabulary),
            teacher=None if teacher is None else teacher.manifest.model,
        )

    def train(self, steps: int, last: int, heard: Heard, stop: Stop) -> int:
        """A part, or its beginning up to `last`; none of it if `stop` says so."""
        config = self._config
        epoch, done = divmod(steps, self.windows)
        count = min(config.part_steps, self.windows - done, last - steps)
        index = done // config.part_steps
        start = self._order(epoch)[index] * config.part_steps * self._tokens
        number = epoch * math.ceil(self.windows / config.part_steps) + index + 1
        rate = config.learning_rate_after(steps / self.windows) * self._state.slowed
        out, began = self._state.weights(steps + count), time.perf_counter()

        def step(done: int, _: int, loss: float) -> None:
            heard(steps + done, rate, loss, done * self._tokens / (time.perf_counter() - began))

        settings = RoundSettings(
            folder=self._artifacts.folder,
            stream=self._job.corpus.training[start : start + count * self._tokens],
            weights=self._weights,
            learning_rate=rate,
            output_sample=config.output_sample,
            sample_seed=stream_of(config.seed, f"part {number}"),
            seed=stream_of(config.seed, f"dropout {number}") >> 8,  # seeds have 7 bytes
            out=out,
            options=BackendOptions(threads=self._threads, precision=config.precision, teacher=self._teacher),
        )
        with Round(settings) as part:
            try:
                trained = part.train(step, stop)
            except StoppedError:
                return steps
        assert trained.weights is not None
        self._weights, self._sha256 = out, trained.weights.sha256
        return steps + count

    def _order(self, epoch: int) -> list[int]:
        """The parts as epoch `epoch`, from 0, has them: whole ones shuffled, then the shorter one."""
        whole = self.windows // self._config.part_steps
        order = list(range(whole))
        SplitMix64(stream_of(self._config.seed, f"epoch {epoch + 1}")).shuffle(order)
        return [*order, whole]

    def evaluate(self) -> Perplexities:
        """See Trainer. Raises TrainingError if the scores are not finite."""
        options = BackendOptions(threads=self._threads, teacher=self._teacher)
        with NativeBackend(self._artifacts, self._weights, options) as engine:
            job, config = self._job, self._config
            found = evaluate(engine, job.vocabulary, job.corpus.validation, config.minibatch, config.bptt)
        return Perplexities(found.perplexity, found.perplexity_with_unknown)

    def weights(self) -> dict[str, Array]:
        """See Trainer."""
        return load_tensors(self._weights)

    def restart(self, steps: int, weights: dict[str, Array]) -> int:
        """See Trainer."""
        steps -= steps % self.windows % self._config.part_steps
        self._weights = self._state.weights(steps) if steps else self._artifacts.path(WEIGHTS)
        if steps not in (0, self._state.steps):
            self._sha256 = save_tensors(self._weights, weights).sha256
        return steps

    def save(self, steps: int) -> str | None:
        """See Trainer. The part's weights are at their place already."""
        within = steps % self.windows % self._config.part_steps
        return None if within else self._sha256
