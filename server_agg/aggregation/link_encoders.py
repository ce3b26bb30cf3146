"""What a link holds: the parts that lead from a round's base model to the next one. FORMAT.md, "Links"."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import (
    TILE_ELEMENTS,
    Array,
    TensorFile,
    TensorSpec,
    WrittenFile,
    tile_ranges,
    write_tensor_file,
)
from phonograd.device_runtime.update.rotated import rotated_parts
from phonograd.device_runtime.update.rotation import BLOCK
from phonograd.device_runtime.update.row_sampling import row_norms
from phonograd.device_runtime.update.rows import INDEX_BYTES
from phonograd.device_runtime.update.sent_rows import LARGEST_DELTA, mask_part, row_count

WHOLE_BITS = 4  # of vectors and small tensors


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


def top_rows_parts(base: TensorFile, target: Target, rows: int, bits: int, seed: int) -> dict[str, Array]:
    """The `rows` rows of largest delta, of all matrices together, at `bits` a weight; other tensors whole.

    Nothing of a tensor that does not move. Memory: those rows and a tile.
    """
    specs = trained_specs(base)
    kept = _largest_rows([spec for spec in specs if _has_rows(spec)], base, target, rows)
    parts: dict[str, Array] = {}
    for spec in specs:
        if _has_rows(spec):
            moved, mask = _deltas_of(spec, kept[spec.name], base, target), mask_part(spec, kept[spec.name])
        else:
            pieces = [_delta(spec, start, stop, base, target) for start, stop in tile_ranges(spec.elements)]
            moved, mask = np.concatenate([np.empty(0, np.float32), *pieces]), {}
        if moved.any():
            width = bits if _has_rows(spec) else WHOLE_BITS
            parts |= {**mask, **rotated_parts(spec.name, moved, width, seed, nearest=True)}
    return parts


def _has_rows(spec: TensorSpec) -> bool:
    return row_count(spec) > 1 and spec.elements > BLOCK


def _largest_rows(specs: Sequence[TensorSpec], base: TensorFile, target: Target, most: int) -> dict[str, Array]:
    """By tensor: the numbers of its rows among the `most` of largest norm, rising; ties by tensor, then row."""
    norms = [
        np.concatenate([row_norms(moved) for _, moved in _row_tiles(spec, base, target)], dtype=np.float64)
        for spec in specs
    ]
    together = np.concatenate([np.empty(0), *norms])
    first = np.argsort(-together, kind="stable")[:most]
    chosen = np.zeros(len(together), bool)
    chosen[first[together[first] > 0]] = True
    ends = np.cumsum([len(each) for each in norms])
    return {
        spec.name: np.flatnonzero(part) for spec, part in zip(specs, np.split(chosen, ends)[: len(specs)], strict=True)
    }


def _deltas_of(spec: TensorSpec, rows: Array, base: TensorFile, target: Target) -> Array:
    """Deltas of the rows, one after the other, float32 [len(rows) x row]."""
    found = [np.empty((0, spec.row), np.float32)]
    for first, moved in _row_tiles(spec, base, target):
        found.append(moved[rows[(rows >= first) & (rows < first + len(moved))] - first])
    return np.concatenate(found).reshape(-1)


def _row_tiles(spec: TensorSpec, base: TensorFile, target: Target) -> Iterator[tuple[int, Array]]:
    """All rows of a tensor in tiles: the number of the first, and deltas, float32 [rows, row]."""
    at_a_time = max(1, TILE_ELEMENTS // spec.row)
    for first, stop in tile_ranges(row_count(spec), at_a_time):
        yield first, _delta(spec, first * spec.row, stop * spec.row, base, target).reshape(-1, spec.row)


def _delta(spec: TensorSpec, start: int, stop: int, base: TensorFile, target: Target) -> Array:
    moved = target.read(spec.name, start, stop) - base.read_range(spec.name, start, stop)
    cut: Array = np.clip(moved, -LARGEST_DELTA, LARGEST_DELTA).astype(np.float32)
    return cut


def write_lossless_link(path: Path, base: TensorFile, model: TensorFile, metadata: Mapping[str, str]) -> WrittenFile:
    """Write a link of codec rows-f32 as a stream: the same parts as the codec's, a tile in memory."""
    changed = {spec.name: _changed_rows(spec, base, model) for spec in trained_specs(base)}
    parts: list[TensorSpec] = []
    for spec in trained_specs(base):
        rows = len(changed[spec.name])
        if rows * (INDEX_BYTES + 4 * spec.row) >= spec.nbytes:
            parts.append(spec)
        else:
            parts += [
                TensorSpec(f"{spec.name}.rows", "U32", (rows,)),
                TensorSpec(f"{spec.name}.values", "F32", (rows, spec.row)),
            ]
    names = {part.name for part in parts}

    def chunks() -> Iterator[Array]:
        for spec in trained_specs(base):
            if spec.name in names:
                for start, stop in tile_ranges(spec.elements):
                    yield model.read_range(spec.name, start, stop)
                continue
            rows = changed[spec.name]
            yield rows.astype("<u4")
            for first, values in _rows_in_tiles(spec, model):
                yield values[rows[(rows >= first) & (rows < first + len(values))] - first]

    return write_tensor_file(path, parts, chunks(), metadata, checksum=True)


def _changed_rows(spec: TensorSpec, base: TensorFile, model: TensorFile) -> Array:
    """Numbers of the rows whose bits differ."""
    found = [np.empty(0, np.int64)]
    for (first, old), (_, new) in zip(_rows_in_tiles(spec, base), _rows_in_tiles(spec, model), strict=True):
        found.append(first + np.flatnonzero((old.view("<u4") != new.view("<u4")).any(axis=1)))
    return np.concatenate(found)


def _rows_in_tiles(spec: TensorSpec, file: TensorFile) -> Iterator[tuple[int, Array]]:
    for first, stop in tile_ranges(row_count(spec), max(1, TILE_ELEMENTS // max(1, spec.row))):
        yield first, file.read_range(spec.name, first * spec.row, stop * spec.row).reshape(-1, spec.row)
