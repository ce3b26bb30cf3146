"""Settings of pre-training, and what it reports.

The defaults are Zaremba et al. (2014), section 4.1, the medium model, as paper P uses it on its server. Theirs trains
all words at each step; `output_sample` is ours.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from phonograd.device_runtime.base.errors import ArtifactsError, UsageError

Backend = Literal["native", "torch"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]
# Settings that one backend alone has.
ONLY: dict[str, tuple[str, ...]] = {
    "native": ("threads", "output_sample", "part_steps", "evaluate_every"),
    "torch": ("device", "checkpoint_steps"),
}


@dataclass(frozen=True)
class PretrainConfig:
    """How to pre-train.

    `learning_rate` and `clip_norm` (L2, of the whole gradient; None: no clipping) hold for the loss summed over the
    window's steps and averaged over the minibatch. The learning rate stays for `decay_after` epochs, then falls by the
    factor `decay` an epoch, without jumps. `bf16` multiplies in bfloat16; weights, loss and update stay float32.
    `max_steps` ends the run early, counted from its very beginning, over resumptions.

    backend: the native engine, or PyTorch, which trains on GPUs too. Of native alone: threads: of the CPU, None for one
    a core. part_steps: steps of a part of the text; parts come in another order in each epoch, and the state is saved
    after each. output_sample: words drawn for each part, for the softmax to train on beside the part's own; None:
    all words. 2000 is what phones are measured with: a vocabulary of 10,000 words gains little, larger ones more.
    evaluate_every: parts of an epoch from one evaluation to the next; None: after epochs only. Of torch alone: device;
    checkpoint_steps: how often the state is saved besides each epoch's end.

    Raises ArtifactsError for a value out of its range, UsageError for one that the backend does not have.
    """

    minibatch: int = 20
    bptt: int = 35
    learning_rate: float = 1.0
    decay: float = 1.2
    decay_after: float = 6
    clip_norm: float | None = 5.0
    dropout: float = 0.5
    epochs: int = 39
    seed: int = 0
    backend: Backend = "native"
    precision: Precision = "fp32"
    max_steps: int | None = None
    threads: int | None = None
    output_sample: int | None = 2000
    part_steps: int = 100
    evaluate_every: int | None = None
    device: Device = "auto"
    checkpoint_steps: int = 1000

    def __post_init__(self) -> None:
        self._check("backend", self.backend in ONLY, f"one of {', '.join(ONLY)}")
        self._require_backend()
        for name in ("minibatch", "bptt", "epochs", "checkpoint_steps", "max_steps", *ONLY["native"]):
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

    def _require_backend(self) -> None:
        defaults = {field.name: field.default for field in fields(self)}
        for backend, names in ONLY.items():
            for name in names:
                if backend != self.backend and (value := getattr(self, name)) != defaults[name]:
                    raise UsageError(
                        f"pre-training: `{name}` is {value}, expected with backend {backend} only; leave it out with "
                        f"{self.backend}, or choose {backend}"
                    )

    def learning_rate_after(self, epochs: float) -> float:
        """The learning rate where so many epochs, or parts of one, are done."""
        return self.learning_rate / float(self.decay ** max(0.0, epochs - self.decay_after))


class Perplexities(NamedTuple):
    """Exp of the mean loss over a text, `<eos>` counted: without targets that are `<unk>`, and with them."""

    without_unknown: float
    with_unknown: float


@dataclass(frozen=True)
class PretrainPoint:
    """Validation perplexities after so many steps, on so many tokens, from the run's very beginning."""

    steps: int
    tokens: int
    perplexity: float
    perplexity_with_unknown: float


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

    steps: from the run's very beginning; parameters: of the model; training_tokens: in one epoch; curve: all
    evaluations, in their order.
    """

    weights: Path
    best_perplexity: float
    best_perplexity_with_unknown: float
    last_perplexity: float
    last_perplexity_with_unknown: float
    steps: int
    parameters: int
    training_tokens: int
    curve: tuple[PretrainPoint, ...]
