"""The machine's ceiling by torch: see product. Variants: `torch`, `torch bf16`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from phonograd.bench.environment import this_environment, version_of
from phonograd.bench.flops import PRODUCTS, ceiling_shape
from phonograd.bench.worker import Ids, Job, UnavailableError
from phonograd.device_runtime.formats.manifest import open_artifacts


class TorchProduct:
    """A product like OpenBlasProduct, of tensors in the precision."""

    def __init__(self, job: Job):
        bf16 = "bf16" in job.variant
        if bf16 and "avx512_bf16" not in this_environment().features:
            raise UnavailableError("this processor has no AVX512-BF16")
        torch.set_num_threads(job.threads)
        M, K, N = ceiling_shape(open_artifacts(Path(job.artifacts), verify=False).manifest)
        dtype = torch.bfloat16 if bf16 else torch.float32
        self._hidden, self._decoder, self._logits = (torch.randn(size).to(dtype) for size in ((M, K), (K, N), (M, N)))
        self.about: Mapping[str, Any] = {"versions": version_of("torch")}

    def step(self, _tokens: Ids, _targets: Ids) -> None:
        """See Contestant."""
        for _ in range(PRODUCTS):
            torch.mm(self._hidden, self._decoder, out=self._logits)


load = TorchProduct
