"""Custom strategies: classes outside phonograd, loaded by name, and what keeps their faults to their rounds."""

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

import msgspec
import numpy as np

from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError, UsageError, WeightsError
from phonograd.device_runtime.base.nearest import did_you_mean
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, all_tiles
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.settings import OWN_NAME, STRATEGIES, StrategySettings
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, Measures, RoundContext

RESERVED = ("round", "parent_sha256")  # of a model's metadata
ENTRY_POINTS = "phonograd.strategies"
LOADED: dict[str, type[Aggregation]] = {}  # by MODULE:CLASS, in this process
_NO_SETTINGS = dataclasses.make_dataclass("NoSettings", (), frozen=True)


class OwnStrategyError(PhonogradError):
    """A custom strategy failed: it raised an error, or returned what is no measure, delta or metadata."""

    exit_code = 31


def own_strategy(own: str | type[Aggregation], **settings: Any) -> StrategySettings:
    """The settings of a round by a custom strategy; `settings` are those of its dataclass `Settings`.

    own: its class, or what `load_strategy` takes. Raises UsageError, ValueError for a setting that it refuses.
    """
    name = load_strategy(own)
    values = dataclasses.asdict(_make_settings(name, settings))
    return StrategySettings(strategy=name, own=json.dumps(values, sort_keys=True))


def load_strategy(own: str | type[Aggregation]) -> str:
    """Load a class and return its name, MODULE:CLASS; from then on `find_strategy` finds it.

    own: such a name, whose module is also looked for in the current folder; the name of an entry point; or the class
    itself, which another process needs by name. This runs the module's code. Raises UsageError, saying what was
    expected.
    """
    if isinstance(own, str):
        name = own if ":" in own else _entry_point(own)
        if name in LOADED:
            return name
        own = _import_class(name)
    else:
        name = f"{own.__module__}:{own.__qualname__}"
    LOADED[name] = _guard(name, _check_class(name, own))
    return name


def find_strategy(name: str) -> type[Aggregation]:
    """Return a loaded class. Raises UsageError if it is not loaded."""
    if name not in LOADED:
        raise UsageError(
            f"`strategy` {name}: expected to be loaded, as a round was opened with it; start with it as `strategy`"
        )
    return LOADED[name]


def _make_settings(name: str, values: Mapping[str, Any]) -> Any:
    """The settings of a loaded class; values must have the types of their fields. Raises ValueError for others."""
    kind = _settings_of(LOADED[name])
    known = [field.name for field in dataclasses.fields(kind)]
    for key in values:
        if key not in known:
            raise ValueError(f"{key}: {name} has no such setting{did_you_mean(key, known)}")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error.__cause__ or error).replace("$.", "")) from error


def _entry_point(name: str) -> str:
    found = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        expected = ", ".join([*STRATEGIES, *sorted(found)])
        raise UsageError(f"`strategy` is {name!r}, expected one of {expected}, or MODULE:CLASS of your own")
    return found[name]


def _import_class(name: str) -> Any:
    if not OWN_NAME.fullmatch(name):
        raise UsageError(f"`strategy` is {name!r}, expected MODULE:CLASS, such as my_package.module:Mine")
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


def _check_class(name: str, own: Any) -> type[Aggregation]:
    which = f"`strategy` {name}"
    if not (isinstance(own, type) and issubclass(own, Aggregation)):
        raise UsageError(f"{which}: expected a subclass of phonograd.Aggregation, found {own!r}")
    declared = _settings_of(own)
    if not dataclasses.is_dataclass(declared):
        raise UsageError(f"{which}: `Settings` expected to be a dataclass, found {declared!r}")
    for field in dataclasses.fields(declared):
        if field.default is dataclasses.MISSING:
            raise UsageError(f"{which}: setting {field.name!r}: a default expected, found none")
    return own


def _settings_of(own: type) -> type[Any]:
    """Return the dataclass `Settings` of a user's class; one without fields if it has none."""
    found: type[Any] = getattr(own, "Settings", _NO_SETTINGS)
    return found


def _guard(name: str, own: type[Aggregation]) -> type[Aggregation]:
    class Guarded(own):  # type: ignore[misc, valid-type]
        one_pass, take = False, Aggregation.take  # by its own `measure` and `add`, also where it derives from Averaging

        def __init__(self, settings: StrategySettings, base: TensorFile, base_sha256: str, context: RoundContext):
            with _blame(name, "begin"):
                self.own = _settings_of(own)(**json.loads(settings.own or "{}"))
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
