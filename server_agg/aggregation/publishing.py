"""From a round's model to the one that it publishes: the base and a link, so that phones need not fetch it whole.

A lossless link publishes the model as it is. A lossy one leaves something out, the residual, which is added to the next
round's delta: error feedback (Seide et al. 2014; Karimireddy et al. 2019). So published models stay close to those of
uncompressed rounds, however many rounds follow.
"""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    WrittenFile,
    check_finite,
    check_specs,
    tile_ranges,
    write_tensor_file,
)
from phonograd.device_runtime.update.links import LinkCodec, PublishBits, write_lossless_link, write_lossy_link

RESIDUAL_FORMAT = "phonograd-residual"
RESIDUAL_VERSION = "1"


class Publish(NamedTuple):
    """How a round publishes its model, as in RoundRules. rows, bits: of codec top-rows."""

    codec: LinkCodec
    rows: int
    bits: PublishBits


@dataclass(frozen=True)
class PublishedFiles:
    """The files that `publish` writes."""

    model: Path
    link: Path
    residual: Path


@dataclass(frozen=True)
class Publication:
    """What a round published.

    link: None where it is no smaller than the model; residual: None of a lossless link. distance: the L2 norm of the
    residual relative to the round's delta; None for a delta of 0.
    """

    model: WrittenFile
    link: WrittenFile | None
    residual: WrittenFile | None
    distance: float | None


@dataclass(frozen=True)
class Target:
    """The weights that a link should lead to: the round's uncompressed model, and what earlier links left out."""

    model: TensorFile
    residual: TensorFile | None

    def read(self, name: str, start: int, stop: int) -> Array:
        """float64 [stop - start] of a tensor."""
        weights = self.model.read_range(name, start, stop).astype(np.float64)
        if self.residual is not None and name in self.residual.specs:
            weights += self.residual.read_range(name, start, stop)
        return weights


def publish(
    how: Publish,
    base: TensorFile,
    base_sha256: str,
    draft: Path,
    written: WrittenFile,
    residual: Path | None,
    files: PublishedFiles,
) -> Publication:
    """Write the model that a round publishes, its link and its residual.

    draft: the round's uncompressed model, with its metadata, and its size and hash; residual: what earlier links left
    out. The same files give the same bytes. A lossless link publishes the draft itself, which moves to `files.model`,
    unless there is a residual to add. Raises WeightsError for a residual of another model or a result that is not
    finite, StorageError.
    """
    with TensorFile(draft) as model, contextlib.ExitStack() as resources:
        left_out = None
        if residual is not None:
            left_out = resources.enter_context(TensorFile(residual))
            check_residual(left_out, base, base_sha256)
        target = Target(model, left_out)
        if how.codec == "top-rows":
            return _lossy(how, base, base_sha256, target, files)
        if residual is None:
            with storage_errors(files.model):
                draft.replace(files.model)
            return _lossless(base, base_sha256, model, written, files)
        written = write_tensor_file(files.model, model.specs.values(), _round_weights(target), model.metadata)
    with TensorFile(files.model) as whole:
        return _lossless(base, base_sha256, whole, written, files)


def _lossless(
    base: TensorFile, base_sha256: str, model: TensorFile, written: WrittenFile, files: PublishedFiles
) -> Publication:
    link = write_lossless_link(files.link, base, base_sha256, model, written.sha256)
    return Publication(written, _useful(link, written, files), None, 0.0)


def _lossy(how: Publish, base: TensorFile, base_sha256: str, target: Target, files: PublishedFiles) -> Publication:
    link, written = write_lossy_link(
        files.link, files.model, base, base_sha256, target.model, target.residual, how.rows, how.bits
    )
    residual, distance = _write_residual(base, target, written.sha256, files)
    return Publication(written, _useful(link, written, files), residual, distance)


def _useful(link: WrittenFile, model: WrittenFile, files: PublishedFiles) -> WrittenFile | None:
    if link.nbytes < model.nbytes:
        return link
    files.link.unlink()
    return None


def _write_residual(
    base: TensorFile, target: Target, model_sha256: str, files: PublishedFiles
) -> tuple[WrittenFile, float | None]:
    squares = {"left out": 0.0, "delta": 0.0}

    def tiles(published: TensorFile) -> Iterator[Array]:
        for spec in trained_specs(base):
            for start, stop in tile_ranges(spec.elements):
                wanted = target.read(spec.name, start, stop)
                left_out = wanted - published.read_range(spec.name, start, stop)
                delta = target.model.read_range(spec.name, start, stop).astype(np.float64)
                delta -= base.read_range(spec.name, start, stop)
                squares["left out"] += float(np.square(left_out).sum())
                squares["delta"] += float(np.square(delta).sum())
                with np.errstate(over="ignore"):
                    tile = left_out.astype(np.float32)
                check_finite("the round's residual", spec.name, tile)
                yield tile

    metadata = {"format": RESIDUAL_FORMAT, "version": RESIDUAL_VERSION, "model_sha256": model_sha256}
    with TensorFile(files.model) as published:
        written = write_tensor_file(files.residual, trained_specs(base), tiles(published), metadata)
    share = squares["left out"] / squares["delta"] if squares["delta"] else math.inf
    return written, math.sqrt(share) if math.isfinite(share) else None


def check_residual(residual: TensorFile, base: TensorFile, base_sha256: str) -> None:
    """Raise WeightsError unless `residual` is what the links up to model `base_sha256` left out."""
    expected = {"format": RESIDUAL_FORMAT, "version": RESIDUAL_VERSION, "model_sha256": base_sha256}
    for key, value in expected.items():
        if (found := residual.metadata.get(key)) != value:
            raise WeightsError(f"{residual.path}: expected {key} {value}, found {found}; restore the file")
    check_specs(str(residual.path), residual.specs, trained_specs(base))


def _round_weights(target: Target) -> Iterator[Array]:
    for name, spec in target.model.specs.items():
        for start, stop in tile_ranges(spec.elements):
            with np.errstate(over="ignore"):
                tile = target.read(name, start, stop).astype(np.float32)
            check_finite("the next model", name, tile)
            yield tile
