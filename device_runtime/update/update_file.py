"""The update a phone sends, written and read by the native library. FORMAT.md, "Updates"."""

import weakref
from collections.abc import Iterator, Mapping
from ctypes import POINTER, c_int64, c_void_p, cast
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.engine.c_abi import Handle, load_library
from phonograd.device_runtime.engine.header import new
from phonograd.device_runtime.formats.tensor_file import (
    CHECKSUM,
    TILE_ELEMENTS,
    Array,
    TensorFile,
    TensorSpec,
    WrittenFile,
    check_specs,
    spec_of,
)

FORMAT = "phonograd-update"
VERSION = "3"
MAX_COUNT = 10**18 - 1  # 18 digits: what any language's 64-bit integers hold, and sums of a few too

# 32 MB: an update by top-rows has 2 million, and decoding it takes longer than what is done with it.
HELD_ELEMENTS = 1 << 22

Norm = Literal["1", "2", "inf"]
NORMS: tuple[Norm, ...] = ("inf", "1", "2")  # as pg_decoded_measure has them

# Neighbouring trained weights: index of the first one in the flattened tensor, and the float32 values.
Tile = tuple[int, Array]


class UpdateInfo(Record, frozen=True):
    """Metadata of an update.

    base_sha256: hash of the tensor file the phone started from; round: the server's number of the round it belongs to;
    tokens: tokens trained, the weight of a token-weighted average; seed: of the rehearsal draw and of random codecs;
    steps: 1 of a phone that took a single step with the gradient of its whole text, None of all others.
    """

    base_sha256: str
    round: int
    tokens: int
    codec: str
    seed: int
    steps: int | None = None


_native_weights: weakref.WeakKeyDictionary[TensorFile, Handle] = weakref.WeakKeyDictionary()


def native_weights(file: TensorFile) -> c_void_p:
    """pg_weights of a tensor file, opened once and valid as long as the file object lives.

    Raises WeightsError unless all tensors are float32.
    """
    weights = _native_weights.get(file)
    if weights is None:
        opened = Handle(load_library(), "weights", file.path, file.descriptor)
        weights = _native_weights.setdefault(file, opened)
    return weights.handle


def _weights_or_null(file: TensorFile | None) -> c_void_p | None:
    return None if file is None else native_weights(file)


def write_update(
    path: Path, base: TensorFile, trained: Mapping[str, Array], info: UpdateInfo, masked: str | None = None
) -> WrittenFile:
    """Encode trained weights against `base` with the codec `info` names and write the file atomically; or, with the
    settings `masked` of a masked round, a grid update, which MaskedPhone masks.

    Of tensors that the base has frozen nothing is written.
    Raises WeightsError for weights that are not finite or do not fit the base, or a base that was changed since it was
    opened, UpdateError for an unknown codec or a count past MAX_COUNT, StorageError when the disk refuses.
    """
    options = update_options(info, masked)
    check_specs("trained weights", {name: spec_of(name, array) for name, array in trained.items()}, base.specs.values())
    arrays = [np.ascontiguousarray(trained[name], "<f4") for name in base.specs]
    tensors = (c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    weights = native_weights(base)
    base.require_unchanged()
    (written,) = load_library().call("pg_update_write", weights, tensors, options, path)
    return WrittenFile(written.nbytes, written.sha256.decode())


def update_options(info: UpdateInfo, masked: str | None = None) -> Any:
    """pg_update_options. Raises UpdateError for a round, tokens or seed past MAX_COUNT."""
    for name, count in (("round", info.round), ("tokens", info.tokens), ("seed", info.seed)):
        if not 0 <= count <= MAX_COUNT:
            raise UpdateError(f"update: {name} {count}: expected a whole number from 0 to {MAX_COUNT}")
    return new("pg_update_options", **msgspec.structs.asdict(info), masked=masked)


class UpdateFile(Handle):
    """An update or a link open for reading. One thread at a time.

    start: its first byte in a file where others may follow it; None: it is all of the file. Raises UpdateError on
    opening, which reads the file once to hold it to its checksum. info: its metadata; nbytes: its size; result_sha256:
    of a link, the model that it leads to.
    """

    def __init__(self, path: Path, start: int | None = None):
        self.path = path
        super().__init__(load_library(), "update", path, -1 if start is None else start)
        (facts,) = self._library.call("pg_update_about", self.handle)
        base_sha256: str = facts.base_sha256.decode(errors="replace")
        self.info = UpdateInfo(
            base_sha256, facts.round, facts.tokens, facts.codec.decode(), facts.seed, facts.steps or None
        )
        self.nbytes: int = facts.nbytes
        self.result_sha256: str | None = facts.result_sha256 and facts.result_sha256.decode(errors="replace")

    def parts(self) -> list[TensorSpec]:
        """The tensors that the file holds, without its checksum. Raises WeightsError."""
        with TensorFile(self.path) as file:
            return [spec for name, spec in file.specs.items() if name != CHECKSUM]

    def check_base(self, base_sha256: str) -> None:
        """Raise UpdateError for an update of another base model."""
        if self.info.base_sha256 != base_sha256:
            raise UpdateError(
                f"{self.path}: made from model {self.info.base_sha256[:12]}…, expected {base_sha256[:12]}…; "
                "fetch the current model and train again"
            )

    def check(self, base: TensorFile, base_sha256: str) -> None:
        """Hold the whole update against the model it must be for, one tile in memory at a time.

        Raises UpdateError (another base model, parts that disagree, a value that is not finite).
        """
        self.check_base(base_sha256)
        self._library.call("pg_update_check", self.handle, native_weights(base))

    def tiles(self, spec: TensorSpec, base: TensorFile, onto: TensorFile | None = None) -> Iterator[Tile]:
        """Trained weights of one tensor, (flat start, float32 values), rising; what is not yielded did not move.

        onto: another model on which they come to stand, onto + (trained - base). A tile has at most TILE_ELEMENTS, and
        stays valid while later ones are read. Raises UpdateError.
        """
        with Handle(
            self._library, "tiles", self.handle, native_weights(base), _weights_or_null(onto), spec.name
        ) as tiles:
            while self.handle:  # until the update is closed
                values = np.empty(min(TILE_ELEMENTS, spec.elements), np.float32)
                runs, count = self._library.call("pg_tiles_next", tiles.handle, values, len(values))
                if count == 0:
                    return
                rows, end = cast(runs, POINTER(c_int64))[: 2 * count], 0
                for start, length in zip(rows[::2], rows[1::2], strict=True):
                    yield start, values[end : end + length]
                    end += length

    def weights(self, base: TensorFile) -> dict[str, Array]:
        """Return all trained weights: base with the update's tiles written over it."""
        decoded = {}
        for name, spec in base.specs.items():
            flat = np.array(base.read(name)).reshape(-1)
            for start, values in self.tiles(spec, base):
                flat[start : start + len(values)] = values
            decoded[name] = flat.reshape(spec.shape)
        return decoded


class DecodedUpdate(Handle):
    """An update as a server takes it, on the model of its round: decoded, measured and added without Python's lock.

    onto: that model, if it is another one than `base`, from which the update was made: then onto + (trained - base)
    is what was trained. The update stays open meanwhile. One thread at a time. Raises UpdateError for parts that do not
    fit, WeightsError for a model that does not.
    """

    def __init__(self, update: UpdateFile, base: TensorFile, onto: TensorFile | None = None):
        self.update, self.base, self._onto = update, base, onto
        self._names = list(base.specs)
        models = native_weights(base), _weights_or_null(onto)
        super().__init__(load_library(), "decoded", update.handle, *models, HELD_ELEMENTS)

    def tiles(self, spec: TensorSpec) -> Iterator[Tile]:
        """Return `UpdateFile.tiles` of the tensor."""
        return self.update.tiles(spec, self.base, self._onto)

    def norms(self, norm: Norm = "2") -> dict[str, float]:
        """Each tensor's ||delta||_p, float64, p = 1, 2 or inf: the same bits on every machine.

        Raises WeightsError for a delta that is not finite, UpdateError.
        """
        norms = self._no_norms()
        self._library.call("pg_decoded_measure", self.handle, norms)
        return dict(zip(self._names, norms[:, NORMS.index(norm)].tolist(), strict=True))

    def add(
        self, sums: Mapping[str, Array], steps_per_unit: float, weight: int, scales: Mapping[str, float] | None = None
    ) -> None:
        """Add weight x (delta x steps_per_unit, to the nearest integer) to flat int64 arrays, which have room for it.

        scales: a factor for each tensor's delta; steps are then rounded towards zero. Raises what `norms` does; the
        sums are of no use then.
        """
        factors = None if scales is None else np.array([scales[name] for name in self._names])
        self._library.call("pg_decoded_add", self.handle, steps_per_unit, weight, factors, self._places(sums))

    def take(self, sums: Mapping[str, Array], steps_per_unit: float, weight: int, limit: float) -> float:
        """Measure and, if every |delta| is below `limit`, add as `add` does, in one pass. The largest |delta|.

        Sums that are not added to are as they were, also when it raises what `norms` does. Raises StorageError, with
        the sums of no use, for an update that changed meanwhile.
        """
        norms = self._no_norms()
        self._library.call("pg_decoded_take", self.handle, steps_per_unit, weight, limit, self._places(sums), norms)
        return float(norms[:, NORMS.index("inf")].max(initial=0.0))

    def _no_norms(self) -> Array:
        return np.empty((len(self._names), len(NORMS)))

    def _places(self, sums: Mapping[str, Array]) -> Any:
        return (c_void_p * len(self._names))(*(sums[name].ctypes.data for name in self._names))
