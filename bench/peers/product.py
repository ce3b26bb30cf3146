"""The machine's ceiling: the output layer's product, computed repeatedly, by NumPy or by the native engine.

Variants: `openblas` (NumPy's), `native`, `native bf16`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.environment import version_of
from phonograd.bench.flops import PRODUCTS, ceiling_shape
from phonograd.bench.kernels import Kernel, NativeKernels
from phonograd.bench.worker import Contestant, Ids, Job
from phonograd.device_runtime.formats.manifest import open_artifacts

Shape = tuple[int, int, int]  # M, K, N of a product [M, K] x [K, N]


class OpenBlasProduct:
    """A product into memory that is allocated once."""

    def __init__(self, shape: Shape):
        M, K, N = shape
        random = np.random.default_rng(0)
        self._hidden = random.standard_normal((M, K), np.float32)
        self._decoder = random.standard_normal((K, N), np.float32)
        self._logits = np.empty((M, N), np.float32)
        self.about: Mapping[str, Any] = {"versions": version_of("numpy")}

    def step(self, _tokens: Ids, _targets: Ids) -> None:
        """See Contestant."""
        for _ in range(PRODUCTS):
            np.matmul(self._hidden, self._decoder, out=self._logits)


class NativeProduct:
    """The engine's own kernel, as its output layer calls it: words are the rows. The engine times itself."""

    def __init__(self, shape: Shape, bf16: bool, threads: int):
        M, K, N = shape
        self._kernels, self._threads = NativeKernels(), threads
        self._kernel = Kernel("gemm_nt_bf16" if bf16 else "gemm_nt", M=N, N=M, K=K)
        self._seconds = self._kernels.seconds(self._kernels.sets[0], self._kernel, threads, 1)
        self.about: Mapping[str, Any] = {"versions": version_of("phonograd"), "kernels": self._kernels.sets[0]}

    def step(self, _tokens: Ids, _targets: Ids) -> None:
        """See Contestant."""
        self._seconds = self._kernels.seconds(self._kernels.sets[0], self._kernel, self._threads, PRODUCTS)

    def phases(self) -> Mapping[str, float]:
        """See Contestant: without making up the operands."""
        return {"product": sum(self._seconds)}


def load(job: Job) -> Contestant:
    """See phonograd.bench.worker."""
    shape = ceiling_shape(open_artifacts(Path(job.artifacts), verify=False).manifest)
    if job.variant == "openblas":
        return OpenBlasProduct(shape)
    return NativeProduct(shape, job.variant == "native bf16", job.threads)
