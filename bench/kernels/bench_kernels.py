"""The products of a full-size training step, 200 tokens in 20 steps of 10, hidden size 650, 30,000 words; and maps."""

import pytest

from phonograd.bench.kernels.conftest import Measure
from phonograd.bench.kernels.native import Kernel

# Sizes as in the engine: rows of the larger matrix are M, tokens are N where they are columns.
PRODUCTS = {
    "logits": Kernel("gemm_nt", M=30_000, N=200, K=650),
    "hidden-gradient": Kernel("gemm_tn", M=200, N=650, K=30_000),
    "output-weights": Kernel("gemm_nn", M=30_000, N=650, K=200),
    "lstm-input": Kernel("gemm_nt", M=2600, N=200, K=650),
    "lstm-recurrent": Kernel("gemm_rows", M=2600, N=10, K=650),
    "lstm-input-gradient": Kernel("gemm_tn", M=200, N=650, K=2600),
    "lstm-weights": Kernel("gemm_nn", M=2600, N=650, K=200),
}
# Maps run over what fits a second-level cache: a slice of the logits, the gates of an LSTM layer.
ELEMENTS = 52_000  # 4·650 gates of 20 tokens


@pytest.mark.parametrize("kernel", PRODUCTS.values(), ids=PRODUCTS)
def bench_product(measure: Measure, kernel_set: str, kernel: Kernel) -> None:
    """One product."""
    measure(kernel_set, kernel)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def bench_map(measure: Measure, kernel_set: str, name: str) -> None:
    """One elementwise function."""
    measure(kernel_set, Kernel(name, N=ELEMENTS))
