"""Masked rounds, simulated: the sum of grid updates, to which masks would add nothing."""

from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import About, MaskedCohort
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import RoundContext
from phonograd.server_agg.masked.mean import MaskedMean
from phonograd.server_agg.masked.stages import Facts
from phonograd.server_agg.settings.masked import MaskedSettings


def about_masked(settings: MaskedSettings, model: Path) -> About:
    """Sizes of a phone's masked update of this model. Raises UsageError for settings that the model does not fit."""
    with TensorFile(model) as base:
        return settings.about(base)


class GridMean(MaskedMean):
    """The mean of grid updates. Raises UsageError for settings that the model does not fit."""

    def __init__(
        self,
        settings: StrategySettings,
        base: TensorFile,
        base_sha256: str,
        context: RoundContext,
        masked: MaskedSettings,
    ):
        cohort = MaskedCohort(context.number, base_sha256, masked.text, None)
        facts = Facts(masked, True, cohort, {}, set())
        super().__init__(settings, base, base_sha256, context, lambda: facts)

    def add_file(self, path: Path) -> None:
        """Add a phone's grid update. Raises UpdateError."""
        self._sum.add_grid(path)

    def _unmask(self, facts: Facts) -> int:
        del facts
        return int(self._sum.values()[-1])
