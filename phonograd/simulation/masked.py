"""Masked rounds, simulated: the sum of grid updates, to which masks would add nothing."""

from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import About, MaskedCohort, MaskedSum
from phonograd.server_agg.settings.masked import MaskedSettings


def about_masked(settings: MaskedSettings, model: Path) -> About:
    """Sizes of a phone's masked update of this model. Raises UsageError for settings that the model does not fit."""
    with TensorFile(model) as base:
        return settings.about(base)


class GridSums:
    """What server_agg.masked.mean.MaskedMean is made of. Raises UsageError for settings that the model does not fit."""

    def __init__(self, settings: MaskedSettings, number: int, base: TensorFile, base_sha256: str):
        self.settings = settings
        self.cohort = MaskedCohort(number, base_sha256, settings.text, None)
        self.about = settings.about(base)

    def add(self, total: MaskedSum, path: Path) -> None:
        """Add a phone's grid update. Raises UpdateError."""
        total.add_grid(path)

    def unmask(self, total: MaskedSum) -> int:
        """The weight of all phones."""
        return int(total.values()[-1])
