"""What a strategy is: pure objects that measure updates, add them, and return the averaged delta tile by tile.

In a round: `begin` when it opens; `weight` and `measure` for each update, then `add` once it is accepted; `deltas` at
the close. After a restart: `begin` again, and `add` for each stored update, in any order, with its stored measures. The
result is the same to the bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, Norm, UpdateInfo
from phonograd.server_agg.aggregation.correlation.run import Run
from phonograd.server_agg.aggregation.fold import Fold, check_float32, max_abs_delta
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.refusals import InvalidUpdateError

Measures = Mapping[str, float]
# Names of measures in the ledger: the largest |delta|, and `norm.TENSOR`, the norm of that tensor's delta.
REACH = "reach"
NORM = "norm."
# Updates that are stacked: each is an open file and a tile of up to 1 MiB.
MAX_STACKED_UPDATES = 256
# Weights are 64-bit integers in the fold and in the ledger.
UNLIMITED = 1 << 62
# Of a private strategy, a weight of 1 is this many integer steps of 2**-20.
WEIGHT_STEPS = 1 << 20


@dataclass(frozen=True)
class RoundContext:
    """The inputs of a round besides its base model.

    number: of the round. noise_key: 32 bytes from a cryptographic source, generated for the round and deleted once it
    is closed: a round that is closed again after a crash gets the same noise, and later nobody can subtract it.
    population: enrolled phones, N; for private strategies that sample.
    phones: that a round expects, a public number; buffers: the noise's memory of the last round, which must stay open
    while it is used, None before the first one; seal: that they are sealed with, if they are; next_seal: to seal those
    of this round with; run: as the server keeps it, None to begin one with the first round; for dp-ftrl.
    """

    number: int
    noise_key: bytes = b""
    population: int = 0
    phones: int = 0
    buffers: TensorFile | None = None
    seal: bytes | None = None
    next_seal: bytes | None = None
    run: Run | None = None


@dataclass(frozen=True)
class ClientUpdate:
    """An accepted update of the round; `open` opens its weights for reading."""

    sha256: str
    weight: int
    measures: Measures
    open: Callable[[], AbstractContextManager[DecodedUpdate]]


class Aggregation:
    """The aggregation of one round's updates into an averaged delta. Not thread-safe.

    Here it only checks them; for a strategy that trains its next model (`server_agg.transfer`), that is all. `base`
    must stay open while it is used. Raises WeightsError unless `base` is F32.
    """

    reads_at_close = True  # whether `deltas` opens the updates
    one_pass = False  # whether `take` reads an update once, so that nothing is gained by measuring it before its turn
    max_updates = UNLIMITED  # that a round may have

    @staticmethod
    def min_updates(settings: StrategySettings) -> int:
        """How many updates a round needs."""
        del settings
        return 1

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        check_float32(base)
        self.settings = settings
        self.base = base
        self.base_sha256 = base_sha256
        self.context = context

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        """Measure the update in one pass. Returns finite numbers, which the ledger stores as JSON.

        Raises WeightsError for values that are not finite or too far from the base.
        """
        return {REACH: max_abs_delta(update)}

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        """Add an update; or, with minus its weight, take one out that was added. Raises SumLimitError, with nothing
        changed, for sums that would overflow.

        If reading fails half way (OSError, StorageError), all later calls raise StorageError: begin again and add the
        stored updates.
        """

    def take(self, update: DecodedUpdate, weight: int) -> Measures:
        """`measure` an update, and `add` it. Raises what these do; if it is `one_pass`, with nothing changed after
        WeightsError and UpdateError.
        """
        measures = self.measure(update)
        self.add(update, weight, measures)
        return measures

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The averaged delta: new float64 tiles in the base's file order and `tile_ranges`.

        `updates` are those that were added, in any order. Exactly 0.0 where nothing changed, and everywhere without
        updates. A private strategy always adds noise, which hides whether a phone took part.
        """
        del updates
        raise TypeError(f"strategy {self.settings.strategy} has no averaged delta; its model is trained")

    def metadata(self) -> dict[str, str]:
        """What it tells the next round, in the metadata of the model; asked for once all updates are added."""
        return {}

    def write_buffers(self, path: Path, metadata: Mapping[str, str]) -> WrittenFile | None:
        """Write what the next round's noise needs of this one's, which nobody but the server may see; None if nothing.

        metadata: the model's, of `model_metadata`. The same bytes each time. Raises StorageError.
        """
        del path, metadata
        return None


class FoldedAggregation(Aggregation):
    """Sums updates as they arrive, in a fold: one int64 per parameter.

    Several processes may each sum a part of a round's updates: merged, they are the sum of all, to the bit.
    """

    reads_at_close = False

    def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
        super().__init__(settings, base, base_sha256, context)
        self.fold = Fold(base, base_sha256)

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        """The sum divided by the total weight."""
        del updates
        return self.fold.deltas()

    def merge(self, file: BinaryIO, updates: Sequence[ClientUpdate]) -> None:
        """Add the sum of `updates`, `packed` by another process. Raises as Fold.merge_packed."""
        self.fold.merge_packed(file, len(updates))


@dataclass(frozen=True)
class Strategy:
    """A way to aggregate rounds."""

    settings: StrategySettings
    aggregation: type[Aggregation]

    @property
    def min_updates(self) -> int:
        """Updates a round needs."""
        return self.aggregation.min_updates(self.settings)

    @property
    def max_updates(self) -> int:
        """Updates a round may have."""
        return self.aggregation.max_updates

    @property
    def name(self) -> str:
        """The strategy's name in the settings."""
        return self.settings.strategy

    def weight(self, info: UpdateInfo) -> int:
        """The update's weight, as of `update_weight`."""
        return update_weight(self.settings, info)

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> Aggregation:
        """Begin a round. Raises WeightsError unless `base` is F32, ValueError for a context that does not suffice."""
        return self.aggregation(self.settings, base, base_sha256, context)


def sorted_by_hash(updates: Sequence[ClientUpdate]) -> list[ClientUpdate]:
    """Updates sorted by hash, so that results do not depend on their arrival."""
    return sorted(updates, key=lambda update: update.sha256)


def measured_norms(update: DecodedUpdate, norm: Norm = "2") -> dict[str, float]:
    """The norm of each tensor's delta, as measures named `norm.TENSOR`. Raises WeightsError."""
    return {NORM + name: value for name, value in update.norms(norm).items()}


def norms_in(measures: Measures) -> dict[str, float]:
    """The norm of each tensor, from the measures named `norm.TENSOR`."""
    return {name.removeprefix(NORM): value for name, value in measures.items() if name.startswith(NORM)}


def update_weight(settings: StrategySettings, info: UpdateInfo) -> int:
    """Tokens (McMahan et al.: each token counts the same) or 1 (each phone does); at least 1.

    Of a private strategy paper M's w_k = min(tokens / w-hat, 1), or 1 without a cap, in steps of 2**-20, rounded down.
    Raises InvalidUpdateError for more than max_tokens, and for an epoch where single steps are averaged.
    """
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
    if settings.private:
        cap = settings.token_cap
        return WEIGHT_STEPS if cap is None else max(1, min(WEIGHT_STEPS, info.tokens * WEIGHT_STEPS // cap))
    return info.tokens if settings.weighting == "tokens" else 1
