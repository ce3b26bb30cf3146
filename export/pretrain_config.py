"""Settings of pre-training, and what it reports.

The defaults are Zaremba et al. (2014), section 4.1, the medium model, as paper P uses it on its server.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from phonograd.device_runtime.base.errors import ArtifactsError

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class PretrainConfig:
    """How to pre-train.

    `learning_rate` and `clip_norm` (L2, of the whole gradient; None: no clipping) hold for the loss summed over the
    window's steps and averaged over the minibatch. The learning rate stays for `decay_after` epochs, then is divided
    by `decay` before each further one. `bf16` runs products in bfloat16 by autocast; weights, loss and update stay
    float32. `max_steps` ends the run early, counted from its very beginning, over resumptions; `checkpoint_steps` is
    how often the state is saved besides each epoch's end. Raises ArtifactsError for a value out of its range.
    """

    minibatch: int = 20
    bptt: int = 35
    learning_rate: float = 1.0
    decay: float = 1.2
    decay_after: int = 6
    clip_norm: float | None = 5.0
    dropout: float = 0.5
    epochs: int = 39
    seed: int = 0
    device: Device = "auto"
    precision: Precision = "fp32"
    max_steps: int | None = None
    checkpoint_steps: int = 1000

    def __post_init__(self) -> None:
        for name in ("minibatch", "bptt", "epochs", "checkpoint_steps", "max_steps"):
            value = getattr(self, name)
            self._check(name, value is None or value >= 1, "at least 1")
        for name in ("learning_rate", "clip_norm"):
            value = getattr(self, name)
            self._check(name, value is None or value > 0, "more than 0")
        for name in ("decay_after", "seed"):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        self._check("decay", self.decay >= 1, "at least 1")
        self._check("dropout", 0 <= self.dropout < 1, "a number in [0, 1)")
        self._check("device", self.device in get_args(Device), f"one of {', '.join(get_args(Device))}")
        self._check("precision", self.precision in get_args(Precision), f"one of {', '.join(get_args(Precision))}")

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise ArtifactsError(f"pre-training: {name} is {getattr(self, name)}, expected {expected}")

    def learning_rate_in(self, epoch: int) -> float:
        """The learning rate in epoch `epoch`, the first being 1."""
        return self.learning_rate / self.decay ** max(0, epoch - self.decay_after)


class Perplexities(NamedTuple):
    """Exp of the mean loss over a text, `<eos>` counted: without targets that are `<unk>`, and with them."""

    without_unknown: float = math.inf
    with_unknown: float = math.inf


@dataclass(frozen=True)
class PretrainProgress:
    """A step was done (`loss` is set) or the validation text evaluated (both perplexities are set).

    epoch, step: from 1, of `epochs`, and of `steps` in an epoch. loss: of this step's window, nats per token.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    learning_rate: float
    loss: float | None = None
    tokens_per_second: float | None = None
    validation_perplexity: float | None = None
    validation_perplexity_with_unknown: float | None = None


@dataclass(frozen=True)
class PretrainResult:
    """What pre-training left: the best perplexities are those of the weights at `weights`, the last those at the end.

    steps: from the run's very beginning; parameters: of the model; training_tokens: in one epoch.
    """

    weights: Path
    best_perplexity: float
    best_perplexity_with_unknown: float
    last_perplexity: float
    last_perplexity_with_unknown: float
    steps: int
    parameters: int
    training_tokens: int
