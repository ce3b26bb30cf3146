"""The protocol of backends, which execute the artifacts, and their options."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.errors import TrainingError, UsageError
from phonograd.device_runtime.formats.tensor_file import Array, Floats

Ids = npt.NDArray[np.int64]
# The target of padding: it counts for neither the loss nor anything else.
IGNORED = -1
MAX_THREADS = 256  # the library's kMaxThreads
Precision = Literal["fp32", "bf16", "bf16-emulated"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Programs and commands take "auto" too: bf16 if it is faster on the CPU that they run on.
PrecisionChoice = Literal[Precision, "auto"]
PRECISION_CHOICES: tuple[PrecisionChoice, ...] = get_args(PrecisionChoice)


@dataclass(frozen=True)
class Window:
    """One step's tokens and the tokens that follow them, both [T, B] int64; targets past the text's end are IGNORED."""

    tokens: Ids
    targets: Ids

    @property
    def predictions(self) -> int:
        """The number of targets that are not padding."""
        return int(np.count_nonzero(self.targets != IGNORED))


@dataclass(frozen=True, eq=False)
class OutputSample:
    """The words of a sampled softmax: candidates int64 [C], rising ids, and float32 [C] to add to their logits."""

    candidates: Ids
    shifts: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.candidates)

    def places(self, ids: Ids) -> Ids:
        """Return the places of ids of any shape among the candidates; -1, a target that does not count, stays.

        Raises TrainingError for an id that is no candidate.
        """
        places = np.searchsorted(self.candidates, ids)
        nearest = self.candidates[np.minimum(places, len(self) - 1)]
        if len(odd := ids[(nearest != ids) & (ids != IGNORED)]):
            raise TrainingError(
                f"output sample: word {odd[0]} expected among its {len(self)} candidates, not found; draw the sample "
                "from the text that is trained on"
            )
        return np.where(ids == IGNORED, IGNORED, places)


@dataclass(frozen=True)
class BackendOptions:
    """How a backend runs. Raises UsageError for threads that can't be.

    threads: CPU threads
    seed: seed of the dropout masks
    sample: the words that the softmax trains on, or None for all words; `logits` scores all words either way

    For backend native only:

    pin_threads: pin each thread to one CPU
    precision: bf16 multiplies in bfloat16 and sums in float32 if the CPU can; bf16-emulated rounds like it on any CPU
    kernels: name of a kernel set; None: that of PHONOGRAD_KERNELS in the environment, or the best for this CPU
    """

    threads: int = 2
    seed: int = 0
    pin_threads: bool = False
    precision: Precision = "fp32"
    kernels: str | None = None
    sample: OutputSample | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"threads: {self.threads}; expected 1 to {MAX_THREADS}")


class Backend(Protocol):
    """Executes an artifacts folder. Not thread-safe: one caller at a time.

    Recurrent states start at zero, carry over from call to call within one text, and return to zero with `reset`.
    """

    def reset(self) -> None:
        """Set the recurrent states to zero, at the start of a new text."""
        ...

    def step(self, window: Window, learning_rate: float) -> float:
        """Train on one window of vocabulary ids. Returns the loss before the update, as the manifest defines it.

        Raises TrainingError for a word that is not in the output sample.
        """
        ...

    def logits(self, tokens: Ids) -> Floats:
        """Scores [T·B, V] float32 of every next word after tokens [T, B], for any T and B; without dropout."""
        ...

    def weights(self) -> dict[str, Array]:
        """Copies of the current trainable tensors, float32."""
        ...

    def close(self) -> None:
        """Free the backend's memory; it can't be used afterwards."""
        ...
