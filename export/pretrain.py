"""Pre-training on a server: the loop over epochs. `pretrain_native` and `pretrain_torch` do what it says."""

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import (
    MissingExtraError,
    StoppedError,
    TrainingError,
    UsageError,
    VocabularyError,
    how_to_install,
)
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import Corpus, require_window
from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress, PretrainResult
from phonograd.export.pretrain_state import PretrainState, run_identity
from phonograd.export.pretrain_trainer import Job, Stop, Trainer
from phonograd.export.torch_layout import seeded_weights

# A perplexity so many times the best is divergence, and so often the learning rate is halved.
FAR_ABOVE, MOST_HALVINGS = 3.0, 5

ProgressCallback = Callable[[PretrainProgress], None]


def pretrain(
    model: LanguageModelConfig,
    vocabulary: Vocabulary,
    corpus: Corpus,
    config: PretrainConfig,
    out: Path,
    *,
    teacher: Artifacts | None = None,
    state_folder: Path | None = None,
    progress: ProgressCallback | None = None,
    stop: Stop | None = None,
) -> PretrainResult:
    """Train a model from `config.seed` and keep at `out` the weights of the lowest validation perplexity, unknown words
    counted. A run that diverges goes back to those weights, or to the first ones, and on at half the rate; after
    MOST_HALVINGS it ends with them.

    teacher: its distribution has a share of 1 - `config.text_share` in the loss. Its vocabulary begins with this one;
    the probability of its other words goes to `<unk>`.

    The validation text is evaluated after each epoch and at the end. With `state_folder` the run's state is kept
    there, and a run that finds its own goes on from it, on one machine's CPU to the same bits as if it had never
    stopped. stop: asked between steps for the number of a signal that asks to end, 0 for none.

    Raises TextError (too short), VocabularyError (not the model's size, or another than the teacher's), ArtifactsError
    (no such device or precision here), UsageError (a teacher that this backend or engine can't run), StateError
    (damaged, in use, of another run), TrainingError (diverged before any evaluation, MOST_HALVINGS times),
    StoppedError, StorageError, UnsupportedError, MissingExtraError.
    """
    if len(vocabulary) != model.vocabulary:
        raise VocabularyError(
            f"{vocabulary.source}: {model.vocabulary} words expected by the model, found {len(vocabulary)}; "
            "build one of that size, or change the model's"
        )
    if teacher is not None:
        _check_teacher(teacher, vocabulary, config)
    require_window(corpus.training, config.minibatch, config.bptt)
    with contextlib.ExitStack() as stack:
        folder = state_folder
        if folder is None and config.backend == "native":  # its weights go from file to file
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phonograd-")))
        job = Job(model, vocabulary, corpus, config, teacher)
        state = PretrainState(folder, run_identity(job), out)
        stack.callback(state.close)
        run = _Run(config, model, _trainer(job, state), state, progress or (lambda _: None), stop or (lambda: 0))
        run.run("the state is saved: run the same command to resume" if state_folder else "no state is saved")
    best, last = state.best, state.record.curve[-1]
    return PretrainResult(
        out, best.perplexity, best.perplexity_with_unknown, last.perplexity, last.perplexity_with_unknown, last.steps,
        model.parameters, len(corpus.training), state.record.curve, state.record.diverged,
    )  # fmt: skip


def _check_teacher(teacher: Artifacts, vocabulary: Vocabulary, config: PretrainConfig) -> None:
    if config.backend != "native":
        raise UsageError(f"a teacher: backend native expected, found {config.backend}; choose native, or no teacher")
    if rank := teacher.manifest.model.adapters:
        raise UsageError(
            f"{teacher.folder}: a teacher without adapters expected, found those of rank {rank}; merge them first"
        )
    words = Vocabulary.load(teacher.path(VOCABULARY)).words
    for number, word in enumerate(vocabulary.words):
        if number == len(words) or word != words[number]:
            found = "no more words" if number == len(words) else repr(words[number].decode(errors="replace"))
            raise VocabularyError(
                f"{teacher.path(VOCABULARY)}: word {number} of {vocabulary.source}, {word.decode(errors='replace')!r}, "
                f"expected of the teacher too, found {found}; take the teacher's vocabulary, or its first words"
            )


def _trainer(job: Job, state: PretrainState) -> Trainer:
    if job.config.backend == "torch":
        try:
            from phonograd.export.pretrain_torch import TorchTrainer  # noqa: PLC0415  # an extra's
        except ImportError as error:
            raise MissingExtraError(f"backend torch needs torch ({error}); {how_to_install('export')}") from error
        return TorchTrainer(job, state)
    from phonograd.export.pretrain_native import NativeTrainer  # noqa: PLC0415

    return NativeTrainer(job, state)


@dataclass
class _Run:
    config: PretrainConfig
    model: LanguageModelConfig
    trainer: Trainer
    state: PretrainState
    progress: ProgressCallback
    stop: Stop
    signal: int = 0

    def run(self, kept: str) -> None:
        """Train to the end. `kept`: what an error that tells of a signal says of the state."""
        total = self.config.epochs * self.trainer.windows
        total = min(total, self.config.max_steps or total)
        steps = self.state.steps
        while len(self.state.record.diverged) <= MOST_HALVINGS or not self.state.record.curve:
            try:
                if steps > self.state.evaluated and (steps >= total or self.due(steps)):
                    self.evaluate(steps)
                if max(steps, self.state.evaluated) >= total:
                    return
                done = self.trainer.train(steps, total, self.report, self.asked_to_stop)
            except TrainingError as error:
                steps = self.go_back(steps, error)
                continue
            if done > steps and self.state.folder is not None and (sha256 := self.trainer.save(done)):
                self.state.advance(done, sha256)
            steps = done
            if self.asked_to_stop():
                raise StoppedError(f"pre-training: stopped after step {self.state.steps}; {kept}", self.signal)

    def go_back(self, steps: int, error: TrainingError) -> int:
        """Go back from where the run diverged; returns the steps to go on from, at half the rate.

        Raises TrainingError if it diverged once too often before any evaluation.
        """
        state, curve = self.state, self.state.record.curve
        weights = load_tensors(state.out) if curve else seeded_weights(self.model, self.config.seed)
        back = self.trainer.restart(state.best.steps if curve else 0, weights)
        sha256 = state.record.sha256
        if back != state.steps:
            sha256 = self.trainer.save(back) if back and state.folder is not None else None
        state.go_back(steps, back, sha256)
        times = len(state.record.diverged)
        if times > MOST_HALVINGS and not curve:
            raise TrainingError(
                f"pre-training, after step {steps}: {error}; diverged {times} times before an evaluation"
            ) from error
        on = f"goes on from step {back} at 1/{2**times} of the learning rate"
        if times > MOST_HALVINGS:
            on = f"ends with the weights of step {state.best.steps}"
        self.report(max(steps, 1), self.rate(steps), diverged=f"diverged after step {steps}, {on}: {error}")
        return back

    def rate(self, steps: int) -> float:
        return self.config.learning_rate_after(steps / self.trainer.windows) * self.state.slowed

    def due(self, steps: int) -> bool:
        step, every = steps % self.trainer.windows, self.config.evaluate_every
        return step == 0 or (every is not None and step % (every * self.config.part_steps) == 0)

    def evaluate(self, steps: int) -> None:
        found = self.trainer.evaluate()
        best = float(self.model.vocabulary)  # a guess, before there is an evaluation
        if self.state.record.curve:
            best = self.state.best.perplexity_with_unknown
        if found.with_unknown > FAR_ABOVE * best:
            raise TrainingError(
                f"validation perplexity {found.with_unknown:.4g}, expected at most {FAR_ABOVE:g} times {best:.4g}"
            )
        self.state.add(found, steps, steps * self.config.minibatch * self.config.bptt, self.trainer.weights)
        self.report(steps, self.rate(steps), None, None, *found)

    def report(self, steps: int, rate: float, *measured: float | None, diverged: str | None = None) -> None:
        epoch, step = divmod(steps - 1, self.trainer.windows)
        at = (epoch + 1, self.config.epochs, step + 1, self.trainer.windows)
        self.progress(PretrainProgress(*at, rate, *measured, diverged=diverged))

    def asked_to_stop(self) -> int:
        self.signal = self.signal or self.stop()
        return self.signal
