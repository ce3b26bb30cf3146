"""Deltas of the rows that travel. `NAME.rows` has a bit for each row; there is no such part where all of them do."""

from collections.abc import Iterator

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codec import Tile

LARGEST_DELTA = np.float32(2.0**100)  # of no use to anyone, but a rotation sums 4096 of them without an infinity


def row_count(spec: TensorSpec) -> int:
    """Rows of a tensor: all dimensions but the last."""
    return spec.elements // spec.row if spec.row else 0


def deltas(spec: TensorSpec, base: Array, trained: Array) -> Array:
    """trained - base, float32 [rows, row], cut to LARGEST_DELTA."""
    new, old = (np.ascontiguousarray(array, "<f4").reshape(row_count(spec), spec.row) for array in (trained, base))
    with np.errstate(over="ignore"):
        difference: Array = np.subtract(new, old)
    np.clip(difference, -LARGEST_DELTA, LARGEST_DELTA, out=difference)
    return difference


def mask_part(spec: TensorSpec, rows: Array) -> dict[str, Array]:
    """`NAME.rows` U8[(rows + 7) // 8]: bit i mod 8 of byte i div 8 is row i; nothing if all of them travel."""
    if len(rows) == row_count(spec):
        return {}
    bits = np.zeros(row_count(spec), bool)
    bits[rows] = True
    return {f"{spec.name}.rows": np.packbits(bits, bitorder="little")}


def sent_rows(spec: TensorSpec, found: TensorFile) -> Array:
    """Numbers of the rows that travel, rising, int64. Raises UpdateError for a mask that can't be one of `spec`."""
    count = row_count(spec)
    part = f"{spec.name}.rows"
    if part not in found.specs:
        return np.arange(count)
    expected = TensorSpec(part, "U8", (-(-count // 8),))
    if found.specs[part] != expected:
        raise UpdateError(f"{found.path}: {expected} expected, found {found.specs[part]}; encode the update again")
    bits = np.unpackbits(found.read(part), bitorder="little")
    if bits[count:].any() or not bits.any():
        raise UpdateError(f"{found.path}: {part}: expected bits of 1 to {count} rows; encode the update again")
    return np.flatnonzero(bits)


def mask_specs(spec: TensorSpec, found: TensorFile) -> list[TensorSpec]:
    """The mask's spec, if there is one; `sent_rows` has looked at it."""
    part = f"{spec.name}.rows"
    return [found.specs[part]] if part in found.specs else []


def check_scales(update: TensorFile, part: str, scales: Array) -> None:
    """Raise UpdateError unless all are finite and at least 0."""
    good = np.isfinite(scales) & (scales >= 0)
    if not good.all():
        bad = scales[int(np.argmin(good))]
        raise UpdateError(f"{update.path}: {part}: finite scales of at least 0 expected, found {bad}")


def trained_rows(spec: TensorSpec, rows: Array, start: int, moved: Array, base: TensorFile) -> Iterator[Tile]:
    """Base + deltas, where `moved` are elements [start, start + n) of the sent rows `rows`, one after the other."""
    stop, width = start + len(moved), spec.row
    first = start // width
    near = rows[first : -(-stop // width)]
    run_starts = np.flatnonzero(np.diff(near, prepend=-2) != 1)
    run_stops = np.append(run_starts[1:], len(near))
    for run_start, run_stop in zip(run_starts.tolist(), run_stops.tolist(), strict=True):
        low, high = max(start, (first + run_start) * width), min(stop, (first + run_stop) * width)
        place = int(near[run_start]) * width + low - (first + run_start) * width
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by who checks
            values = base.read_range(spec.name, place, place + high - low) + moved[low - start : high - start]
        yield place, values
