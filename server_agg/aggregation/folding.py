"""Update files folded without a server: the model is the one that a server's `fedavg` round of them makes."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile, write_tensor_file
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.server_agg.aggregation.fold import Fold
from phonograd.server_agg.aggregation.model_writer import model_metadata
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import update_weight


def fold_files(base: TensorFile, base_sha256: str, updates: Iterable[Path], settings: StrategySettings) -> Fold:
    """The sum of updates, each checked before it is added. base_sha256: the base's hash, from which all must be made.

    Raises WeightsError, UpdateError for an update that does not fit, InvalidUpdateError for one that claims too much.
    """
    fold = Fold(base, base_sha256)
    for path in updates:
        with UpdateFile(path) as update:
            update.check(base, base_sha256)
            with DecodedUpdate(update, base) as decoded:
                fold.accumulate(decoded, update_weight(settings, update.info))
    return fold


def write_average(fold: Fold, updates: Sequence[Path], out: Path) -> WrittenFile:
    """Write the average of the folded updates, of the last of their rounds. Raises WeightsError, StorageError."""
    base = fold.base
    base.require_unchanged()
    metadata = model_metadata(max(map(_round_of, updates)), fold.base_sha256)
    metadata |= frozen_metadata(frozen_in(base), base.specs)
    return write_tensor_file(out, base.specs.values(), fold.finish(), metadata)


def _round_of(path: Path) -> int:
    with UpdateFile(path) as update:
        return update.info.round
