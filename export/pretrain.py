"""Pre-training on a server: SGD with truncated BPTT after Zaremba et al. (2014), the recipe of paper P.

On a CPU, starting Python with `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456` keeps
the C library from giving the logits' pages back and faulting them in again at every step.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.export.corpus import Columns, Corpus, training_columns
from phonograd.export.interrupts import deferred_interrupt
from phonograd.export.pretrain_config import Perplexities, PretrainConfig, PretrainProgress, PretrainResult
from phonograd.export.pretrain_state import PretrainState, restore_state, run_identity, save_best, save_state
from phonograd.export.pretrain_step import evaluate, pick_device, train_step
from phonograd.export.torch_model import LanguageModel

ProgressCallback = Callable[[PretrainProgress], None]


def pretrain(
    model: LanguageModelConfig,
    vocabulary: Vocabulary,
    corpus: Corpus,
    config: PretrainConfig,
    out: Path,
    *,
    state_folder: Path | None = None,
    progress: ProgressCallback | None = None,
) -> PretrainResult:
    """Train a model from `config.seed` and keep at `out` the weights of the lowest validation perplexity, unknown words
    counted.

    The validation text is evaluated after each epoch and at the end. With `state_folder` the run's state is kept
    there, and a run that finds its own goes on from it, on one machine's CPU to the same bits as if it had never
    stopped. At Ctrl-C the step is finished and the state saved before KeyboardInterrupt is raised.

    Raises TextError (too short), VocabularyError (not the model's size), ArtifactsError (no such device or precision
    here, the state of another run), TrainingError (the loss left the finite numbers), StorageError.
    """
    if len(vocabulary) != model.vocabulary:
        raise VocabularyError(
            f"{vocabulary.source}: {model.vocabulary} words expected by the model, found {len(vocabulary)}; "
            "build one of that size, or change the model's"
        )
    columns = training_columns(corpus.training, config.minibatch, config.bptt)
    device = pick_device(config)
    # Dropout draws from PyTorch's global generator; the caller's state of it is put back afterwards.
    cuda = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), deferred_interrupt() as check_interrupt:
        network = LanguageModel(model, config.dropout, config.seed).to(device)
        state = PretrainState(network, network.zero_state(config.minibatch))
        identity = run_identity(model, vocabulary, corpus, config)
        if state_folder is not None:
            restore_state(state_folder, state, identity, out)
        run = _Run(config, columns, corpus.validation, state, identity, out, state_folder, progress, check_interrupt)
        last = run.run()
        tokens = len(corpus.training)
        return PretrainResult(out, *state.best, *last, run.steps_done, model.parameters, tokens)


@dataclass
class _Run:
    """The loop over epochs and steps, and what is written and reported between them."""

    config: PretrainConfig
    columns: Columns
    validation: Ids
    state: PretrainState
    identity: Mapping[str, str]
    out: Path
    state_folder: Path | None
    progress: ProgressCallback | None
    check_interrupt: Callable[[], None]

    @property
    def steps_done(self) -> int:
        return self.state.epoch * self.columns.windows + self.state.step

    @property
    def stopped(self) -> bool:
        return self.config.max_steps is not None and self.steps_done >= self.config.max_steps

    def run(self) -> Perplexities:
        """Train to the end; the validation perplexities there."""
        last = None
        while self.state.epoch < self.config.epochs and not self.stopped:
            last = self.train_epoch()
        if last is None:  # resumed after its end: nothing was left to train
            last = self.validate()
        return last

    def train_epoch(self) -> Perplexities:
        """Train what is left of the epoch, or up to max_steps; returns the validation perplexities after it."""
        state, epoch, steps = self.state, self.state.epoch + 1, self.columns.windows
        rate = self.config.learning_rate_in(epoch)
        state.model.train()
        while state.step < steps and not self.stopped:
            loss, speed = self.train_window(rate)
            if self.steps_done % self.config.checkpoint_steps == 0:
                self.save()
            self.between_steps(PretrainProgress(epoch, self.config.epochs, state.step, steps, rate, loss, speed))
        validation = self.validate()
        report = PretrainProgress(
            epoch,
            self.config.epochs,
            state.step,
            steps,
            rate,
            validation_perplexity=validation.without_unknown,
            validation_perplexity_with_unknown=validation.with_unknown,
        )
        if state.step >= steps:
            state.epoch, state.step = epoch, 0
            state.recurrent = state.model.zero_state(self.config.minibatch)
        self.save()
        self.between_steps(report)
        return validation

    def train_window(self, learning_rate: float) -> tuple[float, float]:
        started = time.perf_counter()
        state, window = self.state, self.columns.window(self.state.step)
        loss, state.recurrent = train_step(
            state.model, window, state.recurrent,
            config=self.config, step=self.steps_done, learning_rate=learning_rate,
        )  # fmt: skip
        state.step += 1
        return loss, window[0].size / (time.perf_counter() - started)

    def validate(self) -> Perplexities:
        perplexities = evaluate(self.state.model, self.validation, self.config.minibatch, self.config.bptt)
        if perplexities.with_unknown < self.state.best.with_unknown:
            self.state.best = perplexities
            save_best(self.out, self.state, self.identity, self.steps_done)
        return perplexities

    def between_steps(self, report: PretrainProgress) -> None:
        """Report, and give way to an interrupt: only here is the state whole, so only here it is saved for one."""
        try:
            if self.progress is not None:
                self.progress(report)
            self.check_interrupt()
        except KeyboardInterrupt:
            self.save()
            raise

    def save(self) -> None:
        if self.state_folder is not None:
            save_state(self.state_folder, self.state, self.identity)
