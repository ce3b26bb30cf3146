"""dp-ftrl: the sum of clipped deltas with correlated noise (arXiv 2408.08868). Neither a sample nor a population."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile
from phonograd.server_agg.aggregation.correlation.run import RUN
from phonograd.server_agg.aggregation.privacy.clipped_sum import STEPS_PER_UNIT, ClippedSum
from phonograd.server_agg.aggregation.privacy.ftrl.buffers import CorrelatedNoise
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream, add_noise
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import ClientUpdate, RoundContext


class CorrelatedMean(ClippedSum):
    """Adds a row of correlated noise to the sum at the close. Who takes part must respect the run's separation.

    Raises ValueError for a round that expects no phones or an invalid key, and as CorrelatedNoise does.
    """

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        if context.phones < 1:
            raise ValueError(f"phones is {context.phones}, expected at least 1 in a round")
        super().__init__(settings, base, base_sha256, context)
        stream = NoiseStream(context.noise_key, context.number, "ftrl")
        self._noise = CorrelatedNoise(settings, base, stream, context)

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """(sum of w x clipped delta + noise) / weight of the phones that were expected, whoever came.

        The noise is rounded to the steps of the sum, the buffers are not: what is published is a rounding of the exact
        mechanism's result.
        """
        del updates
        divisor = self.context.phones * self.settings.mean_weight * STEPS_PER_UNIT
        std = dict.fromkeys(self.base.specs, self._noise.run.noise_std * STEPS_PER_UNIT)
        steps = add_noise(self.fold.deltas(1 / STEPS_PER_UNIT), self.base, self._noise, std, integer=True)
        return (tile / divisor for tile in steps)

    def metadata(self) -> dict[str, str]:
        """The run."""
        return {RUN: self._noise.run.text}

    def write_buffers(self, path: Path, metadata: Mapping[str, str]) -> WrittenFile | None:
        """Write the noise's memory of this round. Raises StorageError."""
        return self._noise.write(path, metadata)
