"""Masked rounds, simulated: the sum of grid updates, to which masks would add nothing."""

from pathlib import Path

from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.server_agg.settings.masked import MaskedSettings


def masked_bytes(settings: MaskedSettings, base: TensorFile) -> int:
    """The values of a phone's masked update. Raises UsageError for settings that the model does not fit."""
    with MaskedCohort(1, "0" * 64, settings.text, None) as cohort:
        about = cohort.about(sum(spec.elements for spec in trained_specs(base)))
    return (about.values * about.width + 7) // 8


class GridSums:
    """What server_agg.masked.mean.MaskedMean is made of. Raises UsageError for settings that the model does not fit."""

    def __init__(self, settings: MaskedSettings, number: int, base: TensorFile, base_sha256: str):
        self.settings = settings
        self.cohort = MaskedCohort(number, base_sha256, settings.text, None)
        self.about = self.cohort.about(sum(spec.elements for spec in trained_specs(base)))

    def new_sum(self) -> MaskedSum:
        """An empty sum."""
        return MaskedSum(self.about.values, self.about.width)

    def add(self, total: MaskedSum, path: Path) -> None:
        """Add a phone's grid update. Raises UpdateError."""
        total.add_grid(path)

    def unmask(self, total: MaskedSum) -> int:
        """The weight of all phones."""
        return int(total.values()[-1])
