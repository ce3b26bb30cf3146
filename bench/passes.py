"""One pass over a model's memory: the unit in which `bench ingest` gives the time from last byte to new model."""

import os
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import load_tensors

TRIALS = 3


@dataclass(frozen=True)
class Passes:
    """Seconds, each the median of a few trials.

    add_seconds: of one pass, c = a + b over all float32 arrays of the model, with a and b in memory and c in newly
    allocated memory. copy_seconds: to copy the model's file and sync the copy.
    """

    add_seconds: float
    copy_seconds: float


def measure_passes(base: Path, update: Path, scratch: Path) -> Passes:
    """Measure both. `scratch` is a temporary file, which is removed."""
    weights, trained = load_tensors(base), load_tensors(update)

    def add() -> None:
        sums = [np.add(array, trained[name]) for name, array in weights.items()]
        del sums

    def copy() -> None:
        with base.open("rb") as source, scratch.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fsync(target.fileno())

    passes = Passes(_median_seconds(add), _median_seconds(copy))
    scratch.unlink()
    return passes


def _median_seconds(work: Callable[[], None]) -> float:
    seconds = []
    for _ in range(TRIALS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
