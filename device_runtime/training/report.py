"""What training did."""

from dataclasses import dataclass
from typing import Literal


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
