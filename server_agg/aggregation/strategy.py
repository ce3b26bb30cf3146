"""What a strategy is: pure objects that measure updates, add them up and give the averaged delta, tile by tile.

A round's life: `begin` when it opens; for each update `weight` and `measure`, then, once it counts, `add`; at the close
`deltas`. After a restart `begin` and `add` again for each stored update, in any order, with the measures that were
kept: the result is the same to the bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.tile_source import TileSource
from phonograd.server_agg.refusals import InvalidUpdateError

Measures = Mapping[str, float]
# Names of measures, as they are kept in the ledger: the largest |delta|; and `norm.TENSOR`, that tensor's norm.
MAX_ABS = "reach"
NORM = "norm."
# Streams of updates that are read side by side: each is an open file, and a tile of up to 1 MiB.
MAX_STACKED_UPDATES = 256
# Weights are counters of 64 bits in the fold and in the ledger.
UNLIMITED = 1 << 62


@dataclass(frozen=True)
class RoundContext:
    """What a round is besides its base model.

    number: the round's. noise_key: 32 bytes from a cryptographic source, drawn for the round and deleted once it is
    closed: a round closed again after a crash gets the same noise, and afterwards nobody can subtract it.
    population: enrolled phones, N; for the private strategies.
    """

    number: int
    noise_key: bytes = b""
    population: int = 0


@dataclass(frozen=True)
class ClientUpdate:
    """An accepted, stored update of the round; `open` gives it for reading."""

    sha256: str
    weight: int
    measures: Measures
    open: Callable[[], AbstractContextManager[TileSource]]


class Aggregation(Protocol):
    """One round's updates on their way to an averaged delta. Not thread-safe."""

    def measure(self, update: TileSource) -> dict[str, float]:
        """Read the update once and change nothing; the measures are finite and JSON-able.

        Raises WeightsError for values that are not finite or too far from the base.
        """
        ...

    def add(self, update: TileSource, weight: int, measures: Measures) -> None:
        """Take an update in. Raises WeightsError, with nothing changed, for sums that would overflow.

        When reading fails half way (OSError, StorageError) the aggregation is spoilt and says so from then on
        (StorageError): begin again and add the stored updates.
        """
        ...

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The averaged delta: fresh float64 tiles in the base's file order and `tile_ranges`.

        `members` are the updates that were added, in any order. Exactly 0.0 where nothing moved; all 0.0 for no member,
        but for the noise of a private strategy, which does not tell whether anybody took part.
        """
        ...


class Strategy(Protocol):
    """A way to average rounds of `fewest_members` to `most_members` updates; it is not to close others."""

    @property
    def name(self) -> str:
        """As in the settings."""
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
        """The update's weight in the sums, at least 1. Raises InvalidUpdateError for an update it will not take."""
        ...

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> Aggregation:
        """A new round. `base` stays open as long as the aggregation is used. Raises WeightsError unless it is F32."""
        ...


def sorted_by_hash(updates: Sequence[ClientUpdate]) -> list[ClientUpdate]:
    """Members by hash: what depends on an order then depends on the round's updates only."""
    return sorted(updates, key=lambda update: update.sha256)


def norms_in(measures: Measures) -> dict[str, float]:
    """Tensor to norm, from measures named `norm.TENSOR`."""
    return {name.removeprefix(NORM): value for name, value in measures.items() if name.startswith(NORM)}


def update_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Tokens (McMahan et al.: each token counts the same) or 1 (each phone does).

    Raises InvalidUpdateError for more tokens than one phone can have trained.
    """
    check_token_claim(settings, info)
    return info.tokens if settings.weighting == "tokens" else 1


def check_token_claim(settings: StrategySettings, info: UpdateInfo) -> None:
    """Raise InvalidUpdateError for more tokens than one phone can have trained."""
    if info.tokens > settings.max_tokens:
        raise InvalidUpdateError(
            f"the update claims {info.tokens} tokens, at most {settings.max_tokens} accepted; "
            "send what was trained in one round"
        )
