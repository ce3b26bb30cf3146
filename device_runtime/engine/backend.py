"""The protocol of backends, which execute the artifacts, and their options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.settings import Settings
from phonograd.device_runtime.formats.tensor_file import Array, Floats

Ids = npt.NDArray[np.int64]
# The target of padding: it counts for neither the loss nor anything else.
IGNORED = -1
MAX_THREADS = 256  # the library's kMaxThreads
Precision = Literal["fp32", "bf16", "bf16-emulated"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# Programs and commands take "auto" too: bf16 if it is faster on the CPU that they run on.
PrecisionChoice = Literal[Precision, "auto"]


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


class BackendOptions(Settings, frozen=True):
    """How a backend runs. Raises ValueError for an option out of range.

    pin_threads, precision, kernels, teacher: not used by ONNX Runtime. bf16 multiplies in bfloat16 and sums in float32
    on CPUs that support it, bf16-emulated rounds the same way on any CPU.
    """

    threads: Annotated[int, Meta(ge=1, le=MAX_THREADS), about("CPU threads.")] = 2
    seed: Annotated[int, about("Seed of the dropout masks.")] = 0
    pin_threads: Annotated[bool, about("Pin each thread to one CPU.")] = False
    precision: Annotated[Precision, about("Precision of matrix products.")] = "fp32"
    kernels: Annotated[
        str | None,
        about("Name of a kernel set.  [default: PHONOGRAD_KERNELS in the environment, or this CPU's best]"),
    ] = None
    sample: Annotated[
        OutputSample | None, about("The words that the softmax trains on, or None for all; `logits` scores all.")
    ] = None
    teacher: Annotated[
        Path | None, about("Artifacts of the teacher that LwF graphs were made for, if another model.")
    ] = None


class Backend(Protocol):
    """Executes an artifacts folder. Not thread-safe: one caller at a time.

    Recurrent states start at zero, carry over from call to call within one text, and return to zero with `reset`.
    """

    def reset(self) -> None:
        """Set the recurrent states to zero, at the start of a new text."""

    def step(self, window: Window, learning_rate: float) -> float:
        """Train on one window of vocabulary ids. Returns the loss before the update, as the manifest defines it.

        Raises TrainingError for a word that is not in the output sample.
        """

    def logits(self, tokens: Ids) -> Floats:
        """Scores [T·B, V] float32 of every next word after tokens [T, B], for any T and B; without dropout."""

    def weights(self) -> dict[str, Array]:
        """Copies of the current trainable tensors, float32."""

    def close(self) -> None:
        """Free the backend's memory; it can't be used afterwards."""
