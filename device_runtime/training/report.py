"""What training did, and when its loss says that it diverged."""

import math
from dataclasses import dataclass
from typing import Literal

from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.engine.backend import Ids, Window
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.text.windows import windows

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
    TextShares; losses: nats a token before each step's update (with LwF, of the LwF loss); step_seconds: wall time of
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


def training_windows(stream: Ids, training: TrainingConfig) -> list[Window]:
    """A pass over a stream of ids [N]. Raises TextError if it does not fill one window of B·T tokens."""
    window_tokens = training.minibatch * training.bptt
    if len(stream) < window_tokens:
        raise TextError(
            f"training text: {window_tokens} tokens expected (one window: minibatch {training.minibatch} x BPTT "
            f"{training.bptt}), found {len(stream)}; give more text"
        )
    return windows(stream, training.minibatch, training.bptt)


def require_converging(loss: float, step: int, layer: OutputLayer, rate: float) -> None:
    """Raise TrainingError if the loss of a step, in nats a token, says that training diverged."""
    most = DIVERGENCE * math.log(layer.words)
    if not loss <= most:  # NaN too
        raise TrainingError(
            f"step {step}: loss is {loss:.6g} nats a token, expected {most:.6g} at most (ten times a uniform guess); "
            f"training diverged: lower the learning rate ({rate}) or export with stronger clipping"
        )
