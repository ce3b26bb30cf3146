"""Writes the next model from a round's averaged delta: streamed, with a few tiles in memory."""

import contextlib
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import atomic_file
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    TensorWriter,
    WrittenFile,
    all_tiles,
    write_tensor_file,
)
from phonograd.server_agg.aggregation.fold import apply_delta
from phonograd.server_agg.aggregation.optimizers import (
    OPTIMIZERS,
    Moments,
    ServerOptimizer,
    state_metadata,
    state_specs,
)
from phonograd.server_agg.aggregation.parallel import prefetch
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate

log = logging.getLogger(__name__)

# The float32 tile of the next model, and the optimizer's moments [n, number of moments].
ModelTile = tuple[Array, Array]


def model_metadata(number: int, base_sha256: str) -> dict[str, str]:
    """The metadata of a round's model. No timestamps: the same updates give the same file, to the bit."""
    return {"round": str(number), "parent_sha256": base_sha256}


def write_model(
    settings: StrategySettings,
    aggregation: Aggregation,
    updates: Sequence[ClientUpdate],
    base: TensorFile,
    old_optimizer_state: Path | None,
    model_path: Path,
    state_path: Path,
    metadata: Mapping[str, str],
) -> tuple[WrittenFile, WrittenFile | None]:
    """Write the model after this round, and the optimizer's state if it has one (else None).

    old_optimizer_state: the state written with `base`, if there is one; that of another optimizer is left out.
    metadata: added to both files. The same updates, settings and context give the same bytes.
    Raises ValueError for a round without updates whose strategy is not private, as its model does not change;
    WeightsError for a state that does not fit or a model that overflows float32; StorageError for disk errors.
    """
    if not updates and not settings.private:
        raise ValueError("a round without updates does not change the model; there is nothing to write")
    of_model = {**metadata, **frozen_metadata(frozen_in(base), base.specs), **aggregation.metadata()}
    optimizer = OPTIMIZERS[settings.server_optimizer](settings)
    with _state(old_optimizer_state, settings) as old:
        moments = Moments(optimizer, base, old)
        tiles = prefetch(_model_tiles(optimizer, moments, base, aggregation.deltas(updates)))
        if not optimizer.initial_moments:
            return write_tensor_file(model_path, base.specs.values(), (tile for tile, _ in tiles), of_model), None
        specs = state_specs(base, len(optimizer.initial_moments))
        with atomic_file(model_path) as model_file, atomic_file(state_path) as state_file:
            model = TensorWriter(model_file, base.specs.values(), of_model)
            state = TensorWriter(state_file, specs, {**metadata, **state_metadata(settings)})
            for weights, remembered in tiles:
                model.write(weights)
                state.write(remembered)
            return model.finish(), state.finish()


@contextlib.contextmanager
def _state(path: Path | None, settings: StrategySettings) -> Iterator[TensorFile | None]:
    if path is None:
        yield None
        return
    with TensorFile(path) as state:
        before, now = state.metadata.get("optimizer"), settings.server_optimizer
        if before != now:
            log.warning("the server optimizer changed from %s to %s, and starts without the earlier state", before, now)
        yield state if before == now else None


def _model_tiles(
    optimizer: ServerOptimizer, moments: Moments, base: TensorFile, deltas: Iterator[Array]
) -> Generator[ModelTile, None, None]:
    for name, start, stop in all_tiles(base.specs):
        remembered = moments.read(name, start, stop)
        step = optimizer.step(next(deltas), remembered)
        try:
            with np.errstate(over="raise", invalid="raise"):
                tile = apply_delta(base, name, start, step), remembered.astype(np.float32)
        except FloatingPointError as error:
            raise WeightsError(
                f"tensor {name}: the next model would overflow float32 ({error}); lower the server's learning rate "
                "or the noise, or roll back"
            ) from error
        yield tile
