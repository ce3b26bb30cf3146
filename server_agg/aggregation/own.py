"""Custom strategies: classes outside phonograd, loaded by name, and what keeps their faults to their rounds."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import (
    PhonogradError,
    StorageError,
    UpdateError,
    WeightsError,
)
from phonograd.device_runtime.base.own_classes import OwnClasses, settings_of
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.settings import STRATEGIES, StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, Measures, RoundContext

RESERVED = ("round", "parent_sha256")  # of a model's metadata


class OwnStrategyError(PhonogradError):
    """A custom strategy failed: it raised an error, or returned what is no measure, delta or metadata."""

    exit_code = 31


def own_strategy(own: str | type[Aggregation], **settings: Any) -> StrategySettings:
    """The settings of a round by a custom strategy; `settings` are those of its dataclass `Settings`.

    own: its class, or what `OWN.load` takes. Raises UsageError, ValueError for a setting that it refuses.
    """
    name = OWN.load(own)
    values = dataclasses.asdict(OWN.make_settings(name, settings))
    return StrategySettings(strategy=name, own=json.dumps(values, sort_keys=True))


def _guard(name: str, own: type[Aggregation]) -> type[Aggregation]:
    """The class, whose errors are OwnStrategyErrors and whose results are checked."""

    class Guarded(own):  # type: ignore[misc, valid-type]
        one_pass, take = False, Aggregation.take  # by its own `measure` and `add`, also where it derives from Averaging

        def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
            with _blame(name, "begin"):
                self.own = settings_of(own)(**json.loads(settings.own or "{}"))
                super().__init__(settings, base, base_sha256, context)

        def measure(self, update: DecodedUpdate) -> dict[str, float]:
            with _blame(name, "measure"):
                found = {str(key): float(value) for key, value in super().measure(update).items()}
                if not all(map(math.isfinite, found.values())):
                    raise ValueError(f"finite numbers expected, found {found}")
                return found

        def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
            with _blame(name, "add"):
                super().add(update, weight, measures)

        def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
            with _blame(name, "deltas"):
                yield from _checked_tiles(super().deltas(updates), self.base)

        def metadata(self) -> dict[str, str]:
            with _blame(name, "metadata"):
                return _checked_metadata(super().metadata())

    return Guarded


@contextlib.contextmanager
def _blame(name: str, part: str) -> Iterator[None]:
    """Errors of foreign code as an OwnStrategyError; those that say what is wrong with an update or a disk stay."""
    try:
        yield
    except (WeightsError, UpdateError, StorageError, OwnStrategyError):
        raise
    except Exception as error:
        raise OwnStrategyError(f"strategy {name}: {part}: {type(error).__name__}: {error}") from error


def _checked_tiles(tiles: Iterator[Array], base: TensorFile) -> Iterator[Array]:
    """The tiles, if each is float64 [stop - start], finite, and if there are as many as the base has."""
    tiles = iter(tiles)
    places = list(all_tiles(base.specs))
    for left, (name, start, stop) in zip(reversed(range(len(places))), places, strict=True):
        tile = next(tiles, None)
        if tile is None:
            raise ValueError(f"tensor {name}: a tile from element {start} expected, found the end")
        found = f"{tile.dtype} {list(tile.shape)}" if isinstance(tile, np.ndarray) else type(tile).__name__
        if found != f"float64 [{stop - start}]":
            raise ValueError(f"tensor {name}: float64 [{stop - start}] expected, found {found}")
        if not np.isfinite(tile).all():
            raise ValueError(f"tensor {name}: finite deltas expected, found NaN or infinity")
        if left == 0 and next(tiles, None) is not None:  # nobody asks for more than the last one
            raise ValueError("the end expected after the base's last tile, found another tile")
        yield tile


def _checked_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if key in RESERVED or not (isinstance(key, str) and isinstance(value, str)):
            raise ValueError(f"texts by names other than {' and '.join(RESERVED)} expected, found {key!r}: {value!r}")
    return dict(metadata)


OWN: OwnClasses[Aggregation] = OwnClasses("strategy", "phonograd.strategies", Aggregation, STRATEGIES, _guard)
