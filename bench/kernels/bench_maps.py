"""Elementwise functions, over what fits a second-level cache: a slice of the logits, the gates of an LSTM layer."""

import pytest

from phonograd.bench.kernels.conftest import Measure
from phonograd.bench.kernels.native import Kernel

ELEMENTS = 52_000  # 4·650 gates of 20 tokens


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def bench_map(measure: Measure, kernel_set: str, name: str) -> None:
    """One function."""
    measure(kernel_set, Kernel(name, N=ELEMENTS))
