"""What the trainer asks of a backend, and what it is started with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import Array, Floats
from phonograd.device_runtime.text.output_sample import OutputSample
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.text.windows import Window

Precision = Literal["fp32", "bf16", "bf16-emulated"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True)
class BackendOptions:
    """How a backend runs: CPU threads, the seed of its dropout masks, and the words that its softmax trains on.

    sample: None is the full softmax, over all words; `logits` scores all words either way. The rest is of backend
    native: pin_threads keeps each thread on one CPU; precision bf16 multiplies in bfloat16 and sums in float32 where
    the CPU can, bf16-emulated rounds the same way anywhere; kernels: None is the best set of kernels that this CPU
    runs, else one by name.
    """

    threads: int = 2
    seed: int = 0
    pin_threads: bool = False
    precision: Precision = "fp32"
    kernels: str | None = None
    sample: OutputSample | None = None


class Backend(Protocol):
    """Executes an artifacts folder. Not thread-safe: one caller at a time.

    Recurrent states start at zero, carry over from call to call within one text, and return to zero with `reset`.
    """

    @classmethod
    def load(cls, artifacts: Artifacts, weights: Path | None, options: BackendOptions) -> "Backend":
        """Start from the folder's weights, or from a tensor file of the same shapes (canonical names, float32).

        Raises WeightsError for weights that do not fit, MissingExtraError when the runtime is not installed, UsageError
        or UnsupportedError for options that it or this CPU has not, ArtifactsError for an output sample where the
        folder has no graph for one.
        """
        ...

    def reset(self) -> None:
        """Set the recurrent states to zero: a new text begins."""
        ...

    def step(self, window: Window, learning_rate: float) -> float:
        """Train on one window of vocabulary ids; the loss as the manifest defines it, before the update.

        Raises TrainingError for a word that is not in the output sample.
        """
        ...

    def logits(self, tokens: Ids) -> Floats:
        """Scores [T·B, V] float32 of every next word after tokens [T, B], T and B free; without dropout."""
        ...

    def weights(self) -> dict[str, Array]:
        """The current trainable tensors, float32, copies."""
        ...

    def close(self) -> None:
        """Free what the backend holds; it can't be used afterwards."""
        ...
