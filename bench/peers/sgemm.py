"""The machine's ceiling: the output layer's product, computed repeatedly by NumPy's OpenBLAS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.environment import version_of
from phonograd.bench.flops import PRODUCTS, ceiling_shape
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.formats.manifest import open_artifacts


class Sgemm:
    """PRODUCTS products [T·B, H] x [H, V] a step, into memory that is allocated once."""

    def __init__(self, job: Job):
        M, K, N = ceiling_shape(open_artifacts(Path(job.artifacts), verify=False).manifest)
        random = np.random.default_rng(0)
        self._hidden = random.standard_normal((M, K), np.float32)
        self._decoder = random.standard_normal((K, N), np.float32)
        self._logits = np.empty((M, N), np.float32)
        self.about: Mapping[str, Any] = {"versions": version_of("numpy"), "shape": [M, K, N]}

    def step(self, _tokens: Ids, _targets: Ids) -> None:
        """See Contestant."""
        for _ in range(PRODUCTS):
            np.matmul(self._hidden, self._decoder, out=self._logits)


def load(job: Job) -> Sgemm:
    """See phonograd.bench.peers."""
    return Sgemm(job)
