"""A small model and rounds of updates to it, for the tests of strategies."""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors, tile_ranges
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, RoundContext
from tests.server_agg.trained_weights import TrainedWeights

SHA = "ab" * 32
SHAPES = {"embedding": (7, 3), "kernel": (1, 8, 5), "bias": (11,)}
CONTEXT = RoundContext(number=3, noise_key=bytes(range(32)), population=100, phones=10)

Weights = Mapping[str, Array]


def random_weights(seed: int, scale: float = 1.0, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


@contextlib.contextmanager
def model(weights: Weights | None = None, metadata: Mapping[str, str] | None = None) -> Iterator[TensorFile]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.safetensors"
        save_tensors(path, random_weights(0) if weights is None else weights, metadata)
        with TensorFile(path) as file:
            yield file


def trained(base: TensorFile, seed: int, scale: float = 0.01) -> dict[str, Array]:
    """The base moved by `scale` times noise."""
    moves = random_weights(seed, scale, {name: spec.shape for name, spec in base.specs.items()})
    return {name: base.read(name) + move for name, move in moves.items()}


def deltas_of(base: TensorFile, weights: Weights) -> dict[str, Array]:
    """Trained less base, float64: what the equations call delta, or w^k - w."""
    return {name: weights[name].astype(np.float64) - base.read(name).astype(np.float64) for name in base.specs}


class Round:
    """One round: every update measured, added, and kept as a member."""

    def __init__(self, base: TensorFile, settings: StrategySettings, context: RoundContext = CONTEXT):
        self.base = base
        self.strategy = strategy_of(settings)
        self.aggregation: Aggregation = self.strategy.begin(base, SHA, context)
        self.updates: list[ClientUpdate] = []

    def take(self, update: TrainedWeights, tokens: int = 100, sha256: str | None = None) -> ClientUpdate:
        weight = self.strategy.weight(UpdateInfo(SHA, 3, tokens, "full-f32", 0, steps=1))
        with update.on(self.base) as decoded:
            measures = self.aggregation.measure(decoded)
            self.aggregation.add(decoded, weight, measures)
        number = len(self.updates)
        sha256 = sha256 or hashlib.sha256(str(number).encode()).hexdigest()

        self.updates.append(ClientUpdate(sha256, weight, measures, lambda: update.on(self.base)))
        return self.updates[-1]

    def result(self, updates: Sequence[ClientUpdate] | None = None) -> dict[str, Array]:
        """The averaged delta, float64, by tensor."""
        updates = self.updates if updates is None else updates
        tiles = self.aggregation.deltas(updates)
        found = {}
        for name, spec in self.base.specs.items():
            parts = []
            for start, stop in tile_ranges(spec.elements):
                tile = next(tiles)
                assert tile.dtype == np.float64
                assert len(tile) == stop - start
                parts.append(tile)
            found[name] = np.concatenate(parts).reshape(spec.shape)
        assert next(tiles, None) is None
        return found


def averaged(
    base: TensorFile,
    settings: StrategySettings,
    updates: Sequence[Weights],
    tokens: Sequence[int] | None = None,
    context: RoundContext = CONTEXT,
) -> dict[str, Array]:
    """The averaged delta of a round of these updates."""
    round_ = Round(base, settings, context)
    for number, weights in enumerate(updates):
        round_.take(TrainedWeights(weights), 100 if tokens is None else tokens[number])
    return round_.result()


def all_bits(tensors: Weights) -> bytes:
    return b"".join(array.tobytes() for array in tensors.values())


def length(tensors: Weights) -> float:
    """L2 norm of all tensors together."""
    return float(np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in tensors.values())))


def minus(one: Weights, other: Weights) -> dict[str, Array]:
    return {name: one[name] - other[name] for name in one}
