"""How large a round's noise is beside the update that it covers: of ten times that, nothing is left of a model."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.correlation.run import RUN, begin_run, run_in
from phonograd.server_agg.aggregation.privacy.adaptive_clip import AdaptiveClip
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings

MOST = 10.0  # times S


@dataclass(frozen=True)
class CoveringNoise:
    """norm: the L2 norm to expect of the noise on a round's mean; bound: S, which the mean of `phones`, as many as are
    expected, hardly exceeds.
    """

    norm: float
    bound: float
    phones: float

    def __str__(self) -> str:
        return (
            f"the noise of a round has a norm of {self.norm:.3g}, {self.norm / self.bound:.3g} times S ({self.bound:g})"
            f", the largest norm of the update that it covers, with {self.phones:g} phones expected in a round"
        )

    @property
    def covers(self) -> bool:
        """Whether it is larger than the update."""
        return self.norm > self.bound

    def require_less(self) -> None:
        """Raise UsageError if it is so large that no model outlives it."""
        if self.norm > MOST * self.bound:
            raise UsageError(
                f"{self}: at most {MOST:g} times expected, more destroys the model; take more phones a round "
                "(strategies that sample them: `sampling` of `population`), or less noise, or give `accept_noise`"
            )


def covering_noise(
    model: Path,
    settings: StrategySettings,
    population: int,
    phones: int,
    masked: MaskedSettings | None = None,
    begun_run: str | None = None,
) -> CoveringNoise | None:
    """The noise of rounds with these settings, of dp-ftrl the largest of its rounds; None without noise.

    population: enrolled phones; phones: expected in a round, of strategies that don't sample. begun_run: dp-ftrl's, as
    text; None: a new one. Raises MissingExtraError for dp-ftrl without SciPy, UsageError for masked settings that do
    not suit the model.
    """
    by_phones = masked is not None and masked.distributed_noise > 0
    if not by_phones and not (settings.private and settings.noise_multiplier):
        return None
    with TensorFile(model) as file:
        parameters = sum(spec.elements for spec in trained_specs(file))
        about = None if masked is None else masked.about(file)
    if masked is not None and about is not None and by_phones:
        std = masked.distributed_noise * about.sensitivity / math.sqrt(masked.cohort * about.honest)
        return CoveringNoise(std * math.sqrt(about.values - 1), masked.clip, masked.cohort)
    if settings.strategy == FTRL:
        run = begin_run(settings) if begun_run is None else run_in({RUN: begun_run}, "ledger")
        assert run is not None
        row = float(np.linalg.norm(run.blt.inverse(run.planned_rounds)))
        return CoveringNoise(
            run.noise_std * row / (phones * settings.mean_weight) * math.sqrt(parameters), settings.clip_norm, phones
        )
    expected, noise = settings.sampling * population, settings.noise_multiplier
    if settings.adaptive_clip is not None:
        noise = AdaptiveClip(settings.adaptive_clip, expected, noise).delta_noise_multiplier
    reach = settings.clip_norm if about is None else about.sensitivity  # with the rounding to the grid
    std = GaussianMean(replace(settings, clip_norm=reach), population, noise).noise_std
    return CoveringNoise(std * math.sqrt(parameters), settings.clip_norm, expected)
