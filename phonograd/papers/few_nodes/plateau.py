"""Training in passes until a validation text's perplexity no longer falls; resumes after each pass."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from phonograd.device_runtime.base.documents import Amount, Count, Positive, Record, document_of, parse, read
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.files import write_bytes

# A smaller fall of the perplexity does not count.
LEAST_FALL = 0.005
_STATE = "state.json"


class Plateau(Record, frozen=True):
    """Rule by which training slows down and stops.

    A pass is a round of averaging or an epoch of DGC. One that does not lower
    the best perplexity by LEAST_FALL multiplies the learning rate by `factor`; training stops when that has happened
    `lowerings` times, or after `limit` passes. epochs: of a node in a pass, before the first lowering, after it, and so
    on; the last for all later ones.
    """

    learning_rate: float
    factor: float
    lowerings: Positive
    limit: Positive
    epochs: tuple[Positive, ...] = (1,)


class Reached(Record, frozen=True):
    """How far training is. model, best: names of files, empty for the weights that it began with; perplexity: of the
    best one on the validation text, 0 before the first pass; lowered: times that the learning rate was; nbytes: up.
    """

    learning_rate: float
    model: str = ""
    best: str = ""
    best_pass: Count = 0
    perplexity: Amount = 0
    passes: Count = 0
    lowered: Count = 0
    uploads: Count = 0
    nbytes: Count = 0


# See `train_to_plateau`.
TrainPass: TypeAlias = Callable[[Path, int, Reached], tuple[Path, int, int]]


def train_to_plateau(
    settings: Plateau,
    weights: Path,
    work: Path,
    train_pass: TrainPass,
    validate: Callable[[Path], float],
    progress: Callable[[Reached], None] | None = None,
) -> Reached:
    """Train from `weights` in passes; the same call resumes after the last pass that it finished.

    work: a folder, where the last model and the best one stay; files there that begin with a digit are named after a
    pass's model, and go with it. train_pass: called with the model to train, each node's epochs, and how far training
    is; returns the new model's file in `work`, uploads, and bytes uploaded. validate: a model's perplexity. Raises
    TrainingError for one that is not finite, StorageError, and what these raise.
    """
    path = work / _STATE
    reached = read(Reached, parse(path.read_bytes())) if path.exists() else Reached(settings.learning_rate)
    while reached.lowered < settings.lowerings and reached.passes < settings.limit:
        epochs = settings.epochs[min(reached.lowered, len(settings.epochs) - 1)]
        model, uploads, nbytes = train_pass(work / reached.model if reached.model else weights, epochs, reached)
        reached = _after(settings, reached, model.name, validate(model))
        reached = replace(reached, uploads=reached.uploads + uploads, nbytes=reached.nbytes + nbytes)
        write_bytes(path, json.dumps(document_of(reached)).encode())
        for old in work.glob("[0-9]*"):
            if old.stem not in (Path(reached.model).stem, Path(reached.best).stem):
                old.unlink()
        if progress is not None:
            progress(reached)
    return reached


def _after(settings: Plateau, before: Reached, model: str, perplexity: float) -> Reached:
    """How far training is after a pass, but for its uploads."""
    if not math.isfinite(perplexity):
        raise TrainingError(f"the perplexity is not finite at learning rate {before.learning_rate}; use a smaller one")
    after = replace(before, model=model, passes=before.passes + 1)
    if before.passes == 0 or perplexity < before.perplexity:
        after = replace(after, best=model, best_pass=after.passes, perplexity=perplexity)
    if before.passes == 0 or perplexity < before.perplexity * (1 - LEAST_FALL):
        return after
    return replace(after, learning_rate=before.learning_rate * settings.factor, lowered=before.lowered + 1)
