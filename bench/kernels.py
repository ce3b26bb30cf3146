"""Single kernels of the native engine, timed by the engine itself, beside the machine's ceiling."""

import ctypes
import itertools
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64
from dataclasses import dataclass
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, Say
from phonograd.bench.markdown import MS, Table, figure, text
from phonograd.bench.results import Document, result_of
from phonograd.device_runtime.base.errors import UnsupportedError, UsageError
from phonograd.device_runtime.engine.c_abi import find_library, load_library

SCHEMA_VERSION = 1
ENTRY = "pg_bench_kernel"
THREADS = "OPENBLAS_NUM_THREADS"
REPEATS = 20
SPINNING = 0.2  # seconds until OpenBLAS's threads stop spinning on the cores that are measured next
CEILING = (200, 650, 30_000)  # M, K, N of the output layer's product: B·T tokens, hidden size, vocabulary


@dataclass(frozen=True)
class Kernel:
    """One measurement: a gemm C[M, N] += A[M, K] B[K, N] (nt: B is transposed, tn: A is transposed, rows: few columns,
    as in one time step), or a function of N elements."""

    name: str
    M: int = 1
    N: int = 1
    K: int = 1

    @property
    def product(self) -> bool:
        """Whether it is a matrix product."""
        return self.name.startswith("gemm")

    @property
    def shape(self) -> str:
        """M x K x N of a product, the elements of a map."""
        return f"{self.M}x{self.K}x{self.N}" if self.product else f"{self.N}"

    @property
    def work(self) -> float:
        """FLOP of a product or elements of a map, in units of 1e9."""
        return (2 * self.M * self.N * self.K if self.product else self.N) / 1e9

    def threads(self, most: int) -> int:
        """One for a map, whose 20 µs are less than it takes to wake another thread."""
        return most if self.product else 1

    @property
    def unit(self) -> str:
        """The unit of `work` per second."""
        return "GFLOP/s" if self.product else "Gelement/s"


# A full-size training step's: 200 tokens in 20 steps of 10, hidden size 650, 30,000 words. Sizes as in the engine: rows
# of the larger matrix are M, tokens are N where they are columns.
PRODUCTS = (
    Kernel("gemm_nt", M=30_000, N=200, K=650),  # logits
    Kernel("gemm_tn", M=200, N=650, K=30_000),  # the hidden state's gradient
    Kernel("gemm_nn", M=30_000, N=650, K=200),  # the output layer's weights
    Kernel("gemm_nt", M=2600, N=200, K=650),  # an LSTM layer's inputs, then one step of it
    Kernel("gemm_rows", M=2600, N=10, K=650),
    Kernel("gemm_tn", M=200, N=650, K=2600),  # its inputs' gradient, and its weights
    Kernel("gemm_nn", M=2600, N=650, K=200),
)
ELEMENTS = 52_000  # 4·650 gates of 20 tokens: what fits a second-level cache
MAPS = tuple(Kernel(name, N=ELEMENTS) for name in ("exp", "sigmoid", "tanh"))


class NativeKernels:
    """The engine's benchmark function. Raises UnsupportedError if the library has none."""

    def __init__(self) -> None:
        self.sets: tuple[str, ...] = tuple(load_library().cpu_info()["kernels"])
        self._library = ctypes.CDLL(str(find_library()))
        if not hasattr(self._library, ENTRY):
            raise UnsupportedError(
                f"{find_library().name}: function {ENTRY} expected, found none; build the engine of this checkout"
            )
        entry = self._library[ENTRY]
        entry.restype = c_int
        entry.argtypes = (c_char_p, c_char_p, c_int64, c_int64, c_int64, c_int32, c_int32, ctypes.POINTER(c_double))
        self._entry = entry

    def seconds(self, kernels: str, kernel: Kernel, threads: int, repeats: int) -> list[float]:
        """Seconds of each of `repeats` calls on prepared operands. Raises UnsupportedError if the engine refuses."""
        taken = (c_double * repeats)()
        status = self._entry(
            kernels.encode(), kernel.name.encode(), kernel.M, kernel.N, kernel.K, threads, repeats, taken
        )
        if status:
            message = load_library().function("pg_last_error")().decode(errors="replace")
            raise UnsupportedError(f"kernel {kernel.name} of {kernels}, {kernel.shape}: {message}")
        return list(taken)


class Ceiling:
    """NumPy's OpenBLAS on the largest product, in this process, on OPENBLAS_NUM_THREADS threads."""

    def __init__(self) -> None:
        M, K, N = CEILING
        random = np.random.default_rng(0)
        self._a, self._b = (random.standard_normal(shape, np.float32) for shape in ((M, K), (K, N)))
        self._c = np.empty((M, N), np.float32)

    def gflops(self, repeats: int = 3) -> float:
        """The median rate."""
        rates: list[float] = []
        for _ in range(repeats):
            began = time.perf_counter()
            np.matmul(self._a, self._b, out=self._c)
            rates.append(2 * self._a.size * self._b.shape[1] / (time.perf_counter() - began) / 1e9)
        time.sleep(SPINNING)
        return statistics.median(rates)


def bench_kernels(kernels: Sequence[Kernel] = (*PRODUCTS, *MAPS), say: Say = str) -> dict[str, Any]:
    """Measure each kernel of each set, on as many threads as OpenBLAS has; a product also as a fraction of the ceiling
    just before and after it.

    Raises UsageError if the number of threads is not set, and UnsupportedError.
    """
    threads = os.environ.get(THREADS, "")
    if not threads.isdigit():
        raise UsageError(f"{THREADS}: a number of threads expected, for NumPy and for the kernels, found {threads!r}")
    engine, ceiling = NativeKernels(), Ceiling()

    def measure(kernel: Kernel, kernel_set: str) -> Answers:
        say(f"{kernel.name} {kernel.shape}, {kernel_set}")
        before = ceiling.gflops() if kernel.product else None
        median = statistics.median(engine.seconds(kernel_set, kernel, kernel.threads(int(threads)), REPEATS))
        rate = kernel.work / median
        return {
            "kernel": kernel.name,
            "set": kernel_set,
            "shape": kernel.shape,
            "median_seconds": median,
            "rate": rate,
            "unit": kernel.unit,
            "fraction_of_sgemm": None if before is None else rate / statistics.mean((before, ceiling.gflops())),
        }

    rows = list(itertools.starmap(measure, itertools.product(kernels, engine.sets)))
    return result_of("kernels", SCHEMA_VERSION, threads=int(threads), kernels=rows)


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    yield "Kernels"
    columns = {
        **{name: text(name) for name in ("kernel", "set", "shape")},
        "ms": figure("median_seconds", ".3g", MS),
        "rate": figure("rate", ".3g"),
        "unit": text("unit"),
        "of sgemm": figure("fraction_of_sgemm", ".0%"),
    }
    yield Table("Kernels", columns, document["kernels"])
