"""The update a phone sends: a tensor file with the parts of one codec and the facts a server needs to fold it."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from phonograd.device_runtime.base.documents import FieldError, Record, read, written
from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.frozen import frozen_in, trained_specs
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    TensorSpec,
    WrittenFile,
    check_finite,
    check_specs,
    save_tensors,
    spec_of,
)
from phonograd.device_runtime.update.codecs import Codec, Tile, codec_named

FORMAT = "phonograd-update"
VERSION = "3"
MAX_COUNT = 10**18 - 1  # 18 digits: what any language's 64-bit integers hold, and sums of a few too


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


# Text, as all metadata of a tensor file; `$` alone lets a line break follow.
Decimal = Annotated[str, Meta(pattern=r"^[0-9]{1,18}$(?!\n)")]


class UpdateMetadata(msgspec.Struct, frozen=True):
    """What an update's metadata must have; other keys are left alone."""

    format: Literal["phonograd-update"]
    version: Literal["3"]
    base_sha256: str
    round: Decimal
    tokens: Decimal
    codec: str
    seed: Decimal
    steps: Literal["1"] | None = None


def write_update(path: Path, base: TensorFile, trained: Mapping[str, Array], info: UpdateInfo) -> WrittenFile:
    """Encode trained weights against `base` with the codec `info` names and write the file atomically.

    Of tensors that the base has frozen nothing is written.
    Raises WeightsError for weights that are not finite or do not fit the base, or a base that was changed since it was
    opened, UpdateError for an unknown codec or a count past MAX_COUNT, StorageError when the disk refuses.
    """
    codec = codec_named(info.codec)
    require_counts(info)
    check_specs("trained weights", {name: spec_of(name, array) for name, array in trained.items()}, base.specs.values())
    parts: dict[str, Array] = {}
    for spec in trained_specs(base):
        name = spec.name
        check_finite("trained weights", name, trained[name])
        parts |= codec.encode(spec, base.read(name), trained[name], info.seed)
    base.require_unchanged()
    return save_tensors(path, parts, metadata_of(info), checksum=True)


def require_counts(info: UpdateInfo) -> None:
    """Raise UpdateError for a round, tokens or seed past MAX_COUNT."""
    for name, count in (("round", info.round), ("tokens", info.tokens), ("seed", info.seed)):
        if not 0 <= count <= MAX_COUNT:
            raise UpdateError(f"update: {name} {count}: expected a whole number from 0 to {MAX_COUNT}")


def metadata_of(info: UpdateInfo) -> dict[str, str]:
    """An update's metadata."""
    facts = {name: str(value) for name, value in written(info).items() if value is not None}
    return {"format": FORMAT, "version": VERSION, **facts}


class UpdateFile:
    """An update open for reading; `start`: as of TensorFile.

    Raises UpdateError on opening, which reads the file once to hold it to its checksum.
    """

    def __init__(self, path: Path, start: int | None = None):
        self.path = path
        with as_update_error():
            self.tensors = TensorFile(path, start)
        try:
            _check_version(path, self.tensors.metadata)
            with as_update_error():
                self.tensors.take_checksum()
            self.info = _parse_info(path, self.tensors.metadata)
            self.codec: Codec = codec_named(self.info.codec)
        except BaseException:
            self.tensors.close()
            raise

    def __enter__(self) -> "UpdateFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tensors.close()

    def check(self, base: TensorFile, base_sha256: str) -> None:
        """Hold the whole update against the model it must be for, one tile in memory at a time.

        Raises UpdateError (another base model, parts that disagree, a value that is not finite).
        """
        self.check_base(base_sha256)
        self.check_parts(base)
        for spec in trained_specs(base):
            for _, values in self.tiles(spec, base):
                with as_update_error():
                    check_finite(str(self.path), spec.name, values)

    def check_base(self, base_sha256: str) -> None:
        """Raise UpdateError for an update of another base model."""
        if self.info.base_sha256 != base_sha256:
            raise UpdateError(
                f"{self.path}: made from model {self.info.base_sha256[:12]}…, expected {base_sha256[:12]}…; "
                "fetch the current model and train again"
            )

    def check_parts(self, base: TensorFile) -> None:
        """Hold names, dtypes and shapes of the parts against the model, values unseen.

        Raises UpdateError.
        """
        expected = [part for spec in trained_specs(base) for part in self.codec.expects(spec, self.tensors)]
        with as_update_error():
            check_specs(str(self.path), self.tensors.specs, expected)

    def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        """Trained weights of one tensor, (flat start, float32 values), rising; what is not yielded did not move."""
        return iter(()) if spec.name in frozen_in(base) else self.codec.decode(spec, self.tensors, base, self.info.seed)

    def weights(self, base: TensorFile) -> dict[str, Array]:
        """All trained weights, in memory: base with the update's tiles written over it."""
        decoded = {}
        for name, spec in base.specs.items():
            flat = np.array(base.read(name)).reshape(-1)
            for start, values in self.tiles(spec, base):
                flat[start : start + len(values)] = values
            decoded[name] = flat.reshape(spec.shape)
        return decoded


@contextlib.contextmanager
def as_update_error() -> Iterator[None]:
    """What a tensor file says of its damage, as UpdateError; an OSError behind it stays there."""
    try:
        yield
    except WeightsError as error:
        raise UpdateError(str(error)) from error.__cause__ or error


def _check_version(path: Path, metadata: Mapping[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise UpdateError(f"{path}: not an update: metadata has no format={FORMAT}; write one with: phonograd train")
    if (found := metadata.get("version", "none")) != VERSION:
        raise UpdateError(f"{path}: update version {VERSION} expected, found {found}")


def _parse_info(path: Path, metadata: Mapping[str, str]) -> UpdateInfo:
    try:
        found = read(UpdateMetadata, dict(metadata))
    except FieldError as error:
        raise UpdateError(f"{path}: metadata {error}; encode the update again") from error
    if int(found.tokens) == 0:
        raise UpdateError(f"{path}: 0 tokens trained, expected at least 1")
    steps = None if found.steps is None else int(found.steps)
    return UpdateInfo(found.base_sha256, int(found.round), int(found.tokens), found.codec, int(found.seed), steps)
