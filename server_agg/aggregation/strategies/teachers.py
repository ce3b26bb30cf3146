"""Strategy `transfer` at ingest. `phonograd.server_agg.transfer` trains its next model at the close."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.norms import max_abs_delta
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import (
    REACH,
    UNLIMITED,
    ClientUpdate,
    Measures,
    RoundContext,
    update_weight,
)
from phonograd.server_agg.aggregation.tile_source import TileSource, check_float32


@dataclass(frozen=True)
class Teachers:
    """Each update is a teacher; the close opens one at a time."""

    settings: StrategySettings
    name: str = "transfer"
    min_updates: int = 1
    max_updates: int = UNLIMITED

    def weight(self, info: UpdateInfo) -> int:
        """Tokens, or 1. Raises InvalidUpdateError for more than max_tokens."""
        return update_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> "CheckedTeachers":
        """Needs no memory."""
        del base_sha256, context
        check_float32(base)
        return CheckedTeachers(base)


class CheckedTeachers:
    """Checks updates at ingest."""

    def __init__(self, base: TensorFile):
        self._base = base

    def measure(self, update: TileSource) -> dict[str, float]:
        """The largest |delta|. Raises WeightsError for values that are not finite."""
        return {REACH: max_abs_delta(update, self._base)}

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Does nothing: the close reads the stored updates."""

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """Raises TypeError: there is no averaged delta."""
        del updates
        raise TypeError("strategy transfer has no averaged delta; its model is trained")
