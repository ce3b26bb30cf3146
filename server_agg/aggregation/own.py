"""Strategies of one's own: classes outside phonograd, loaded by name, and what keeps their faults to their rounds."""

import contextlib
import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import (
    PhonogradError,
    StorageError,
    UpdateError,
    UsageError,
    WeightsError,
)
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.settings import OWN_NAME, STRATEGIES, StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, Measures, RoundContext

ENTRY_POINTS = "phonograd.strategies"
RESERVED = ("round", "parent_sha256")  # of a model's metadata
_LOADED: dict[str, type[Aggregation]] = {}  # by MODULE:CLASS, each with its guard
_NO_SETTINGS = dataclasses.make_dataclass("NoSettings", (), frozen=True)


class OwnStrategyError(PhonogradError):
    """A strategy of one's own failed: it raised an error, or returned what is no measure, delta or metadata."""

    exit_code = 31


def own_strategy(own: str | type[Aggregation], **settings: Any) -> StrategySettings:
    """The settings of a round by a strategy of one's own; `settings` are those of its dataclass `Settings`.

    own: its class, or what `load` takes. Raises UsageError, ValueError for a setting that it refuses.
    """
    name = load(own)
    values = dataclasses.asdict(settings_class(name)(**settings))
    return StrategySettings(strategy=name, own=json.dumps(values, sort_keys=True))


def load(own: str | type[Aggregation]) -> str:
    """Load a strategy and return its name, MODULE:CLASS; from then on `strategy_of` knows it.

    own: such a name, whose module is also looked for in the current folder; the name of an entry point of the group
    phonograd.strategies; or the class itself, which a server that starts again needs by name. This runs the module's
    code. Raises UsageError, saying what was expected.
    """
    if isinstance(own, str):
        name = own if ":" in own else _entry_point(own)
        if name in _LOADED:
            return name
        own = _imported(name)
    else:
        name = f"{own.__module__}:{own.__qualname__}"
    _LOADED[name] = _guarded(name, _checked_class(name, own))
    return name


def loaded(name: str) -> type[Aggregation]:
    """The class of a loaded strategy, with its guard. Raises UsageError if it is not loaded."""
    if name not in _LOADED:
        raise UsageError(
            f"`strategy` {name}: expected to be loaded, as a round was opened with it; start with it as `strategy`"
        )
    return _LOADED[name]


def settings_class(name: str) -> type[Any]:
    """The dataclass of a loaded strategy's settings; one without fields if it has none."""
    return _settings_of(loaded(name))


def _settings_of(own: type[Aggregation]) -> type[Any]:
    found: type[Any] = getattr(own, "Settings", _NO_SETTINGS)
    return found


def _entry_point(name: str) -> str:
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        installed = "".join(f", {one}" for one in sorted(found))
        raise UsageError(
            f"`strategy` is {name!r}, expected one of {', '.join(STRATEGIES)}{installed}, or MODULE:CLASS of your own"
        )
    return found[name]


def _imported(name: str) -> Any:
    if not OWN_NAME.fullmatch(name):
        raise UsageError(f"`strategy` is {name!r}, expected MODULE:CLASS, such as my_package.averages:Mine")
    module, _, path = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: it must not hide what is installed
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever a foreign module raises
        raise UsageError(f"`strategy` {name}: cannot be imported: {type(error).__name__}: {error}") from error
    return found


def _checked_class(name: str, own: Any) -> type[Aggregation]:
    if not (isinstance(own, type) and issubclass(own, Aggregation)):
        raise UsageError(f"`strategy` {name}: expected a subclass of phonograd.Aggregation, found {own!r}")
    declared = _settings_of(own)
    if not dataclasses.is_dataclass(declared):
        raise UsageError(f"`strategy` {name}: `Settings` expected to be a dataclass, found {declared!r}")
    for field in dataclasses.fields(declared):
        if field.default is dataclasses.MISSING:
            raise UsageError(f"`strategy` {name}: setting {field.name!r}: a default expected, found none")
    return own


def _guarded(name: str, own: type[Aggregation]) -> type[Aggregation]:
    """The class, whose errors are OwnStrategyErrors and whose results are checked."""

    class Guarded(own):  # type: ignore[misc, valid-type]
        one_pass, take = False, Aggregation.take  # by its own `measure` and `add`, also where it derives from Averaging

        def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
            with _blamed(name, "begin"):
                self.own = _settings_of(own)(**json.loads(settings.own or "{}"))
                super().__init__(settings, base, base_sha256, context)

        def measure(self, update: DecodedUpdate) -> dict[str, float]:
            with _blamed(name, "measure"):
                found = {str(key): float(value) for key, value in super().measure(update).items()}
                if not all(map(math.isfinite, found.values())):
                    raise ValueError(f"finite numbers expected, found {found}")
                return found

        def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
            with _blamed(name, "add"):
                super().add(update, weight, measures)

        def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
            with _blamed(name, "deltas"):
                yield from _checked_tiles(super().deltas(updates), self.base)

        def metadata(self) -> dict[str, str]:
            with _blamed(name, "metadata"):
                return _checked_metadata(super().metadata())

    return Guarded


@contextlib.contextmanager
def _blamed(name: str, part: str) -> Iterator[None]:
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
