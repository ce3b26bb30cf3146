"""The precision that trains faster on this CPU."""

from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.engine.backend import PRECISIONS, BackendOptions, Precision
from phonograd.device_runtime.engine.c_abi import load_library, options_of


@dataclass(frozen=True)
class FasterPrecision:
    """The precision that trains faster, and the rates of a product, in GFLOP/s. bf16: 0 without instructions for it."""

    precision: Precision
    fp32: float
    bf16: float

    def __str__(self) -> str:
        bf16 = f"{self.bf16:.0f} in bf16" if self.bf16 else "no instructions for bf16"
        return f"{self.precision} is faster on this CPU: a product runs at {self.fp32:.0f} GFLOP/s in fp32, {bf16}"


def faster_precision(options: BackendOptions) -> FasterPrecision:
    """Measured now, in about 50 ms, with the threads and kernels of `options`. Raises what loading the library does."""
    rates = np.empty(2)
    (found,) = load_library().call("pg_faster_precision", options_of(options), rates)
    return FasterPrecision(PRECISIONS[found], *rates.tolist())
