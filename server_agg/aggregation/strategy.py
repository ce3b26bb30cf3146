"""The strategy protocol: pure objects that measure updates, add them, and return the averaged delta tile by tile.

In a round: `begin` when it opens; `weight` and `measure` for each update, then `add` once it is accepted; `deltas` at
the close. After a restart: `begin` again, and `add` for each stored update, in any order, with its stored measures. The
result is the same to the bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.tile_source import TileSource
from phonograd.server_agg.refusals import InvalidUpdateError

Measures = Mapping[str, float]
# Names of measures in the ledger: the largest |delta|, and `norm.TENSOR`, the norm of that tensor's delta.
REACH = "reach"
NORM = "norm."
# Updates that are stacked: each is an open file and a tile of up to 1 MiB.
MAX_STACKED_UPDATES = 256
# Weights are 64-bit integers in the fold and in the ledger.
UNLIMITED = 1 << 62


@dataclass(frozen=True)
class RoundContext:
    """The inputs of a round besides its base model.

    number: of the round. noise_key: 32 bytes from a cryptographic source, generated for the round and deleted once it
    is closed: a round that is closed again after a crash gets the same noise, and later nobody can subtract it.
    population: enrolled phones, N; for private strategies.
    """

    number: int
    noise_key: bytes = b""
    population: int = 0


@dataclass(frozen=True)
class ClientUpdate:
    """An accepted update of the round; `open` opens its weights for reading."""

    sha256: str
    weight: int
    measures: Measures
    open: Callable[[], AbstractContextManager[TileSource]]


class Aggregation(Protocol):
    """The aggregation of one round's updates into an averaged delta. Not thread-safe."""

    def measure(self, update: TileSource) -> dict[str, float]:
        """Measure the update in one pass. Returns finite numbers, which the ledger stores as JSON.

        Raises WeightsError for values that are not finite or too far from the base.
        """
        ...

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Add an update. Raises WeightsError, with nothing changed, for sums that would overflow.

        If reading fails half way (OSError, StorageError), all later calls raise StorageError: begin again and add the
        stored updates.
        """
        ...

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The averaged delta: new float64 tiles in the base's file order and `tile_ranges`.

        `updates` are those that were added, in any order. Exactly 0.0 where nothing changed, and everywhere without
        updates. A private strategy always adds noise, which hides whether a phone took part.
        """
        ...


@runtime_checkable
class HandsOnMetadata(Protocol):
    """An aggregation that tells the next round something, in the metadata of the model that it starts from."""

    def metadata(self) -> dict[str, str]:
        """Asked for once all updates are added."""
        ...


class Strategy(Protocol):
    """A way to aggregate rounds of `min_updates` to `max_updates` updates."""

    @property
    def name(self) -> str:
        """The strategy's name in the settings."""
        ...

    @property
    def min_updates(self) -> int:
        """Updates a round needs."""
        ...

    @property
    def max_updates(self) -> int:
        """Updates a round may have."""
        ...

    def weight(self, info: UpdateInfo) -> int:
        """The update's weight, at least 1. Raises what `check_claims` raises."""
        ...

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> Aggregation:
        """Begin a round. `base` must stay open while the aggregation is used. Raises WeightsError unless it is F32."""
        ...


def sorted_by_hash(updates: Sequence[ClientUpdate]) -> list[ClientUpdate]:
    """Updates sorted by hash, so that results do not depend on their arrival."""
    return sorted(updates, key=lambda update: update.sha256)


def norms_in(measures: Measures) -> dict[str, float]:
    """The norm of each tensor, from the measures named `norm.TENSOR`."""
    return {name.removeprefix(NORM): value for name, value in measures.items() if name.startswith(NORM)}


def update_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Tokens (McMahan et al.: each token counts the same) or 1 (each phone does).

    Raises what `check_claims` raises.
    """
    check_claims(settings, info)
    return info.tokens if settings.weighting == "tokens" else 1


def check_claims(settings: StrategySettings, info: UpdateInfo) -> None:
    """Raise InvalidUpdateError for more than max_tokens, and for an epoch where single steps are averaged."""
    if info.tokens > settings.max_tokens:
        raise InvalidUpdateError(
            f"the update claims {info.tokens} tokens, the limit is {settings.max_tokens}; "
            "send only what was trained in one round"
        )
    if settings.one_step and info.steps != 1:
        raise InvalidUpdateError(
            f"the update is of a step for each window, {settings.strategy} averages single steps; "
            "train again with `steps` 1"
        )
