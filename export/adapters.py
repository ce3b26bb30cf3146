"""Low-rank adapters on every matrix: W acts as W + B A, of which B alone trains.

The form of FFA-LoRA (Sun et al. 2024): A is a fixed random projection and B starts at zero. It is linear in what
trains, so the average of models is the model of the average, and noise on B is not multiplied by other noise. A's rows
are orthonormal: B A is as long as B, so that a bound and noise mean the same for B as for a whole matrix.
"""

import msgspec
import numpy as np

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array


def with_adapters(
    config: LanguageModelConfig, weights: dict[str, Array], rank: int, seed: int
) -> tuple[LanguageModelConfig, dict[str, Array]]:
    """The model with adapters of this rank, which compute nothing yet. Raises ArtifactsError for too high a rank."""
    try:
        adapted = msgspec.structs.replace(config, adapters=rank)
    except ValueError as error:
        raise ArtifactsError(f"model: {error}") from error
    random = np.random.Generator(np.random.PCG64(seed))
    adapters: dict[str, Array] = {}
    for spec in adapted.tensor_specs():
        if spec.name.endswith(ADAPTER_A):
            orthonormal, _ = np.linalg.qr(random.standard_normal(spec.shape[::-1]))
            adapters[spec.name] = np.ascontiguousarray(orthonormal.T, np.float32)
        elif spec.name.endswith(ADAPTER_B):
            adapters[spec.name] = np.zeros(spec.shape, np.float32)
    return adapted, {**weights, **adapters}
