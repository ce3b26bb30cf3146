"""Training on the phone: the phone's part of paper P's round, without the upload."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from phonograd.device_runtime.base.errors import StoppedError, TextError, TrainingError, UsageError
from phonograd.device_runtime.base.system import peak_rss_bytes
from phonograd.device_runtime.engine.backend import Backend
from phonograd.device_runtime.formats.manifest import Manifest, TrainingConfig
from phonograd.device_runtime.text.rehearsal import TrainingText
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.text.windows import Window, windows
from phonograd.device_runtime.training.rest import rest, rest_after
from phonograd.device_runtime.training.state import SAVE_EVERY, CompletedSteps, TrainingState

# Training has diverged if the loss is this many times that of a uniform guess over the softmax's words.
DIVERGENCE = 10.0


@dataclass(frozen=True)
class OutputLayer:
    """The words that the softmax runs over: the vocabulary or an output sample. words: their number."""

    kind: Literal["full", "sampled"]
    words: int


@dataclass(frozen=True)
class EpochReport:
    """The result of training, with its time and memory.

    epochs: passes over the text; steps: of all epochs; tokens: of one pass; *_unknown_share, user_invalid_share: see
    TrainingText; losses: nats a token before each step's update (with LwF, of the LwF loss); step_seconds: wall time of
    each step; both lists have all steps, also the first `resumed_at`, which an earlier process did; seconds: of this
    process's steps and saves; rest_seconds: of its rests, with a `duty` below 1; peak_rss_bytes: of the whole process
    so far, 0 on Windows.

    windows_per_step: 1; or with `full_batch`, which takes a single step, all: then `steps`, `losses` and `step_seconds`
    are the windows'.
    """

    epochs: int
    steps: int
    tokens: int
    user_tokens: int
    general_tokens: int
    user_share: float
    user_unknown_share: float
    general_unknown_share: float | None
    user_invalid_share: float
    duty: float
    learning_rate: float
    clip_norm: float | None
    loss_reduction: str
    output_layer: OutputLayer
    losses: tuple[float, ...]
    step_seconds: tuple[float, ...]
    seconds: float
    rest_seconds: float
    peak_rss_bytes: int
    resumed_at: int = 0
    windows_per_step: int = 1


def train_epoch(
    backend: Backend,
    manifest: Manifest,
    text: TrainingText,
    learning_rate: float | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    state: TrainingState | None = None,
    save_every: int = SAVE_EVERY,
    stop: Callable[[], int] | None = None,
    epochs: int = 1,
    candidates: int | None = None,
    duty: float = 1.0,
    full_batch: bool = False,
) -> EpochReport:
    """Train on a text, each epoch from zero states.

    learning_rate: None is the artifacts' own. candidates: the number of words in the backend's output sample, None
    without one. progress: called with (steps done, steps in total, loss in nats a token). state: resumed from, and
    saved to every `save_every` steps. stop: called between steps and during rests; returns the number of a signal that
    asks training to stop, or 0. duty: share of the wall time that steps take, in (0, 1]; the rest of it is rests
    between them. full_batch: take one step, with the mean of all windows' gradients, clipped once (FedSGD); the backend
    was loaded with the same option. Raises TextError if the text does not fill one window of B·T tokens, TrainingError
    if a loss is not finite or training diverges, StoppedError (after saving the state) if `stop` asks for it,
    UsageError for an impossible `duty` or a full batch of several epochs, and what `TrainingState` raises.
    """
    if not 0 < duty <= 1:
        raise UsageError(f"`duty` is {duty}, expected more than 0 and at most 1")
    if full_batch and epochs != 1:
        raise UsageError(f"`steps` 1 is a single pass over the text: `epochs` 1 expected, found {epochs}")
    training = manifest.training
    layer = OutputLayer("full", manifest.model.vocabulary) if candidates is None else OutputLayer("sampled", candidates)
    rate = training.learning_rate if learning_rate is None else learning_rate
    layout = training_windows(text.stream, training)
    steps = epochs * len(layout)
    window_rate = rate / len(layout) if full_batch else rate
    backend.reset()
    done = state.resume(steps) if state else CompletedSteps()
    losses, step_seconds = list(done.losses), list(done.step_seconds)
    resumed_at = saved_at = len(losses)
    busy = rest_seconds = 0.0
    began = time.perf_counter()
    for step in range(resumed_at, steps):
        if state and len(losses) - saved_at >= save_every:
            state.save(losses, step_seconds)
            saved_at = len(losses)
        rest_seconds += rest(rest_after(busy, duty), stop)
        if number := stop() if stop else 0:
            if state and saved_at < len(losses):
                state.save(losses, step_seconds)
            saved = "the state is saved: run the same command to resume" if state else "nothing is saved"
            raise StoppedError(f"interrupted after step {len(losses)} of {steps}; {saved}", number)
        window = layout[step % len(layout)]
        if window is layout[0]:
            backend.reset()
        step_began = time.perf_counter()
        loss = backend.step(window, window_rate)
        busy = time.perf_counter() - step_began
        step_seconds.append(busy)
        if training.loss_reduction == "sum_over_time":
            loss *= training.minibatch / window.predictions
        losses.append(loss)
        require_sound(loss, len(losses), layer, rate)
        if progress is not None:
            progress(len(losses), steps, loss)
    if full_batch:
        backend.finish_full_batch(rate)
    return EpochReport(
        epochs=epochs,
        steps=steps,
        tokens=len(text.stream),
        user_tokens=text.user_tokens,
        general_tokens=text.general_tokens,
        user_share=text.user_share,
        user_unknown_share=text.user_unknown_share,
        general_unknown_share=text.general_unknown_share,
        user_invalid_share=text.user_invalid_share,
        duty=duty,
        learning_rate=rate,
        clip_norm=training.clip_norm,
        loss_reduction=training.loss_reduction,
        output_layer=layer,
        losses=tuple(losses),
        step_seconds=tuple(step_seconds),
        seconds=time.perf_counter() - began - rest_seconds,
        rest_seconds=rest_seconds,
        peak_rss_bytes=peak_rss_bytes(),
        resumed_at=resumed_at,
        windows_per_step=len(layout) if full_batch else 1,
    )


def training_windows(stream: Ids, training: TrainingConfig) -> list[Window]:
    """A pass over a stream of ids [N]. Raises TextError if it does not fill one window of B·T tokens."""
    window_tokens = training.minibatch * training.bptt
    if len(stream) < window_tokens:
        raise TextError(
            f"training text: {window_tokens} tokens expected (one window: minibatch {training.minibatch} x BPTT "
            f"{training.bptt}), found {len(stream)}; give more text"
        )
    return list(windows(stream, training.minibatch, training.bptt))


def require_sound(loss: float, step: int, layer: OutputLayer, rate: float) -> None:
    """Raise TrainingError if the loss of a step, in nats a token, says that training diverged."""
    most = DIVERGENCE * math.log(layer.words)
    if not loss <= most:  # NaN too
        raise TrainingError(
            f"step {step}: loss is {loss:.6g} nats a token, expected {most:.6g} at most (ten times a uniform guess); "
            f"training diverged: lower the learning rate ({rate}) or export with a smaller `clip_norm`"
        )
