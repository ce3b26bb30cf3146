"""One phone's training, from a user's text to weights and an update."""

import contextlib
import dataclasses
import math
import os
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from phonograd.api.base_weights import base_weights
from phonograd.api.inputs import (
    StrPath,
    Text,
    artifacts_of,
    chosen_seed,
    counts_of,
    messages_of,
    path_of,
    require_output,
    vocabulary_of,
)
from phonograd.api.model import LoadBackend
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.engine import DEFAULT_BACKEND, Backend, BackendOptions, load_backend
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile, save_tensors
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample, random_sample_seed
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN, TrainingText, mix, require_known
from phonograd.device_runtime.training import trainer
from phonograd.device_runtime.training.state import SAVE_EVERY, TrainingState, saved_seed
from phonograd.device_runtime.training.trainer import EpochReport
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC
from phonograd.device_runtime.update.trained_update import finite_weights, write_trained_update
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update

# A context in which signals are noted; it gives a function that tells the first one's number, 0 for none.
Listening = Callable[[], AbstractContextManager[Callable[[], int]]]


@dataclass(frozen=True)
class ResumableState:
    """Where an epoch keeps its state, so that a run that was killed goes on to the same bits (backend native).

    save_every: steps from one save to the next; restart: discard what the folder holds.
    """

    folder: StrPath
    save_every: int = SAVE_EVERY
    restart: bool = False


@dataclass(frozen=True)
class Trained:
    """What one training left.

    seed: of all that was random; report: losses, seconds, tokens, memory; weights, update: size and hash of the files
    that were asked for.
    """

    seed: int
    report: EpochReport
    weights: WrittenFile | None = None
    update: WrittenFile | None = None

    @property
    def seconds_per_step(self) -> float:
        """The median over all steps."""
        return statistics.median(self.report.step_seconds)


def train(
    artifacts: Artifacts | StrPath,
    user: Text,
    *,
    rehearsal: Text | None = None,
    user_share: float | None = None,
    weights: StrPath | None = None,
    epochs: int = 1,
    steps: Literal[1] | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    output_sample: int | None = None,
    sample_seed: int | None = None,
    phone: str | None = None,
    round_number: int = 1,
    out: StrPath | None = None,
    update: StrPath | None = None,
    codec: str = DEFAULT_CODEC,
    max_unknown: float = MAX_UNKNOWN,
    backend: str = DEFAULT_BACKEND,
    options: BackendOptions | None = None,
    state: ResumableState | None = None,
    duty: float = 1.0,
    stop: Listening | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    on_text: Callable[[TrainingText], None] | None = None,
    load: LoadBackend = load_backend,
) -> Trained:
    """Train on a user's text as a phone does, and write the trained weights and the update for the server.

    user, rehearsal: a file, one message a line, or the messages. Of `rehearsal`, general text, so much is mixed in that
    the user's share of the tokens is `user_share` (TrainingConfig's if None). weights: what training starts from, as in
    `open_model`. steps: 1 takes a single step, with the gradient of the whole text (FedSGD); None is one step for each
    window. learning_rate: None is the artifacts'. The seed is `seed`, or follows from model, `round_number` and
    `phone`, or is random; it replaces that of `options`.

    output_sample: train the softmax over the text's own words and this many others, drawn at random (FORMAT.md, "Output
    sample"), in place of the whole vocabulary: several times faster. sample_seed: of that draw; None is a random one,
    which a state keeps, and which no one else may learn.

    out: where the trained weights go; update: where the update goes, in `codec` and of round `round_number`; of a text
    of whose words the vocabulary lacks a larger share than max_unknown, in (0, 1], none is made (TextError). duty: the
    share of the wall time that steps take, in (0, 1]: below 1, rests between them keep the device cooler.

    progress hears (steps done, steps in all, nats a token); on_text hears what will be trained on; stop is entered
    before the first step and gives a function that is asked between steps for the number of a signal that asks to end,
    0 for none.

    Raises TextError, ArtifactsError, VocabularyError, WeightsError (the base, or it was changed meanwhile),
    TrainingError (not finite, diverged), StorageError, StateError, StoppedError, UsageError for arguments that do not
    go together, and what `Backend.load` raises.
    """
    if user_share is not None and rehearsal is None:
        raise UsageError("user_share needs rehearsal, the general text to mix in")
    if steps not in (None, 1):
        raise UsageError(f"`steps` {steps}: expected 1, a single step with the gradient of the whole text")
    if options is not None and options.sample is not None:
        raise UsageError("options: no sample expected, train draws it; give output_sample")
    if not 0 < max_unknown <= 1:
        raise UsageError(f"`max_unknown` {max_unknown}: expected a number above 0 and at most 1")
    outputs = _Outputs(path_of(out), path_of(update))
    inputs = (artifacts, user, rehearsal, weights)
    outputs.require_places(*inputs)
    if state is not None:
        require_output(state.folder, *inputs, others=outputs.paths, folder=True)
    folder = artifacts_of(artifacts)
    draw = _sample_draw(output_sample, sample_seed, state)
    rate = folder.manifest.training.learning_rate if learning_rate is None else learning_rate
    if not 0 < rate < math.inf:
        raise UsageError(f"`learning_rate` {rate}: expected a finite number above 0")
    with contextlib.ExitStack() as kept:
        base = kept.enter_context(base_weights(folder, path_of(weights)))
        base_sha256 = base.sha256() if update is not None or phone is not None else ""
        saved = None if state is None or state.restart else saved_seed(Path(state.folder))
        seed = chosen_seed(seed, phone, lambda: base_sha256, round_number, saved)
        text = _training_text(folder, user, rehearsal, user_share, seed)
        if update is not None:
            require_known(text, str(user) if isinstance(user, str | os.PathLike) else "user text", max_unknown)
        if on_text is not None:
            on_text(text)
        sample = None if draw is None else draw_output_sample(text.stream, counts_of(folder), draw)
        chosen = dataclasses.replace(options or BackendOptions(), seed=seed, sample=sample, full_batch=steps == 1)
        engine = load(backend, folder, None if weights is None else base.path, chosen)
        kept.callback(engine.close)
        base.require_at_path()
        resumable = None
        asked = None if stop is None else kept.enter_context(stop())
        if state is not None:
            resumable = kept.enter_context(
                TrainingState(engine, Path(state.folder), text.stream, rate, state.restart, draw)
            )
        save_every = SAVE_EVERY if state is None else state.save_every
        candidates = None if sample is None else len(sample)
        report = trainer.train_epoch(
            engine,
            folder.manifest,
            text,
            rate,
            progress,
            resumable,
            save_every,
            asked,
            epochs,
            candidates,
            duty,
            steps == 1,
        )
        info = UpdateInfo(base_sha256, round_number, report.tokens, codec, seed, steps)
        trained = Trained(seed, report, *outputs.write(base, engine, info))
        if resumable is not None:
            resumable.discard()  # last: a kill before this is a resume that ends in the same files
    return trained


def _sample_draw(drawn: int | None, seed: int | None, state: ResumableState | None) -> SampleDraw | None:
    """Raises UsageError for numbers that can't be."""
    if drawn is None:
        if seed is not None:
            raise UsageError("sample_seed needs output_sample, the number of words to draw")
        return None
    if drawn < 1 or not 0 <= (seed or 0) < 1 << 64:
        raise UsageError(f"output_sample from 1 and sample_seed of 64 bits expected, found {drawn} and {seed}")
    if seed is None and state is not None and not state.restart:
        seed = saved_seed(Path(state.folder), "sample_seed")
    return SampleDraw(drawn, random_sample_seed() if seed is None else seed)


def _training_text(
    folder: Artifacts, user: Text, rehearsal: Text | None, user_share: float | None, seed: int
) -> TrainingText:
    share = 1.0 if rehearsal is None else TrainingConfig().user_share if user_share is None else user_share
    vocabulary = vocabulary_of(folder)
    return mix(messages_of(user), [] if rehearsal is None else messages_of(rehearsal), share, vocabulary, seed)


@dataclass(frozen=True)
class _Outputs:
    """The files that a training leaves."""

    weights: Path | None
    update: Path | None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.weights, self.update) if path is not None]

    def require_places(self, *inputs: object) -> None:
        """Raise StorageError if one can't be made, UsageError if it is an input or the other, before the work."""
        for number, path in enumerate(self.paths):
            require_output(path, *inputs, others=self.paths[:number])
            require_writable(path)

    def write(self, base: TensorFile, engine: Backend, info: UpdateInfo) -> tuple[WrittenFile | None, ...]:
        """Write the weights and the update, as far as they were asked for. `base` is what training started from.

        Raises TrainingError if a weight is not finite, WeightsError if the base was changed meanwhile, StorageError.
        """
        weights = update = None
        if self.weights is not None:
            trained = finite_weights(engine)
            base.require_unchanged()
            weights = save_tensors(self.weights, trained)
            if self.update is not None:
                update = write_update(self.update, base, trained, info)
        elif self.update is not None:
            update = write_trained_update(self.update, base, engine, info)
        return weights, update
