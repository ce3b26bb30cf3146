"""Settings of pre-training, and what it reports.

The defaults are Zaremba et al. (2014), section 4.1, the medium model, as paper P uses it on its server. Theirs trains
all words at each step; `output_sample` is ours.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, NotNegative, Positive, Settings, Share, fields_of
from phonograd.device_runtime.engine.backend import MAX_THREADS
from phonograd.device_runtime.formats.manifest import ClipNorm, Dropout

Backend = Literal["native", "torch"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "bf16"]
# Settings that one backend alone has.
ONLY: dict[Backend, tuple[str, ...]] = {
    "native": ("threads", "output_sample", "part_steps", "evaluate_every", "text_share"),
    "torch": ("device", "checkpoint_steps"),
}


class PretrainConfig(Settings, frozen=True):
    """How to pre-train.

    `learning_rate` and `clip_norm` hold for the loss summed over the window's steps and averaged over the minibatch.
    The learning rate stays for `decay_after` epochs, then falls by the factor `decay` an epoch, without jumps. `bf16`
    multiplies in bfloat16; weights, loss and update stay float32. A part of the text (native) has its words drawn for
    the softmax once; parts come in another order in each epoch, and the state is saved after each.

    Raises ValueError for a value out of its range, or one that the backend does not have.
    """

    minibatch: Annotated[Count, about("Sequences side by side.")] = 20
    bptt: Annotated[Count, about("Time steps a window.")] = 35
    learning_rate: Annotated[Positive, about("Learning rate.")] = 1.0
    decay: Annotated[float, Meta(ge=1), about("Factor by which the learning rate falls in an epoch.")] = 1.2
    decay_after: Annotated[NotNegative, about("Epochs, or parts of one, before the learning rate falls.")] = 6.0
    clip_norm: ClipNorm = 5.0
    dropout: Dropout = 0.5
    epochs: Annotated[Count, about("Passes over the text.")] = 39
    seed: Annotated[FromZero, about("Seed of weights, order, draws and dropout.")] = 0
    backend: Annotated[Backend, about("What trains: the native engine, or PyTorch, which trains on GPUs too.")] = (
        "native"
    )
    precision: Annotated[Precision, about("Precision of matrix products.")] = "fp32"
    max_steps: Annotated[
        Count | None, about("Stop after this many steps in total, counted from the run's very beginning.")
    ] = None
    threads: Annotated[
        int | None, Meta(ge=1, le=MAX_THREADS), about("CPU threads (native).  [default: one a core]")
    ] = None
    output_sample: Annotated[
        Count | None,
        Meta(extra={"none": "all"}),
        about(
            "Train the softmax over the words of each part of the text and about so many others, drawn at random "
            "(native). 2000 is what phones are measured with: a vocabulary of 10,000 words gains little, larger ones "
            "more."
        ),
    ] = 2000
    part_steps: Annotated[Count, about("Steps of a part of the text (native).")] = 100
    evaluate_every: Annotated[
        Count | None,
        about("Parts, of 100 steps, from one evaluation to the next (native).  [default: only after each epoch]"),
    ] = None
    text_share: Annotated[
        Share,
        about("λ, the share of the text's own words in the loss; the rest is the teacher's, if there is one (native)."),
    ] = 0.5
    device: Annotated[Device, about("Where PyTorch trains.")] = "auto"
    checkpoint_steps: Annotated[
        Count, about("How often PyTorch's state is saved besides each epoch's end, in steps.")
    ] = 1000

    def check_together(self) -> None:
        """Raise ValueError for a setting that the backend does not have."""
        declared = fields_of(PretrainConfig)
        for backend, names in ONLY.items():
            for name in names if backend != self.backend else ():
                plain = getattr(self, name) == declared[name].default
                self.require(name, plain, f"with backend {backend} only; leave it out with {self.backend}")

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
    """A step was done (`loss` is set), the validation text evaluated (both perplexities are set), or the run diverged.

    diverged: a line for people: where, and where it goes on.

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
    diverged: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class PretrainResult:
    """What pre-training left: the best perplexities are those of the weights at `weights`, the last those at the end.

    steps: from the run's very beginning; parameters: of the model; training_tokens: in one epoch; curve: all
    evaluations, in their order, without those after a step that the run went back to; diverged: the steps at which it
    diverged.
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
    diverged: tuple[int, ...]
