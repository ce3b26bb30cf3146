"""The memory of correlated noise: a few numbers for each parameter, which the next round's noise begins with.

A file for each round, beside its model: `NAME.buffers` F64 [*shape, buffers]. Whoever reads it can take noise off the
models around it, so it stays with the servers, sealed: XOR with bits of a key that is kept apart from the file and
deleted with it, so that copies are as useless as those of a deleted key. It is float64 since the noise is as private as
stated only if it is linear in its normal numbers: each rounding of a buffer moves the next round's mean, in float32 by
up to a hundredth of a phone's reach with 10^7 parameters, in float64 by less than a billionth.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    TensorSpec,
    WrittenFile,
    check_specs,
    tile_ranges,
    write_tensor_file,
)
from phonograd.server_agg.aggregation.correlation.run import RUN, Run, begin_run, run_in
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategy import RoundContext

DOMAIN = b"phonograd-buffers-seal-v1"
BLOCK = 1 << 15  # numbers; the bits depend on the position, not on the tiles

FORMAT, VERSION = "phonograd-noise-buffers", "1"
STEPS = "steps"  # metadata key: rounds of the run so far


class CorrelatedNoise:
    """Rows of C^-1 Z for every position of every tensor, in one round.

    stream: row t of Z. context: buffers after the round before, None if this is the run's first; seals. Goes on with
    the run of the base model, or begins one; with the context's, the ledger's, nothing else. Raises WeightsError for
    buffers that are missing or of another model, settings that are not the run's, another run, and one that is over;
    MissingExtraError.
    """

    def __init__(self, settings: StrategySettings, base: TensorFile, stream: NoiseStream, context: RoundContext):
        self._base, self._stream, self._before, kept = base, stream, context.buffers, context.run
        self._seal, self._next_seal = context.seal, context.next_seal
        run = run_in(base.metadata, str(base.path))
        self.run: Run = run or kept or begin_run(settings)
        if kept is not None and kept != self.run:
            raise WeightsError(f"{base.path}: it is of another run of dp-ftrl than the ledger's; restore the model")
        self.run.require(settings)
        self._blt = self.run.blt
        self.steps = 1 + self._steps_before(run)
        if self.steps > self.run.planned_rounds:
            raise WeightsError(
                f"{base.path}: all {self.run.planned_rounds} rounds of its run of dp-ftrl are over (`planned_rounds`), "
                "and the model is final"
            )

    def _steps_before(self, run: Run | None) -> int:
        base, before = self._base, self._before
        if run is None and before is None:
            return 0
        if before is None:
            raise WeightsError(
                f"{base.path}: the noise buffers of its round expected, found none; restore them: without them, later "
                "noise can't take back earlier noise"
            )
        expected = {"format": FORMAT, "version": VERSION}
        expected |= {key: base.metadata.get(key, "none") for key in (RUN, "round", "parent_sha256")}
        for key, value in expected.items():
            if (found := before.metadata.get(key)) != value:
                raise WeightsError(
                    f"{before.path}: expected {key} {value}, that of model {base.path.name}, found {found}; restore "
                    "the buffers that were written with it"
                )
        check_specs(str(before.path), before.specs, self._specs())
        return int(before.metadata[STEPS])

    def normals(self, tensor: str, start: int, stop: int) -> Array:
        """The row, for elements [start, stop) of a tensor, float64."""
        return self._advance(tensor, start, stop)[0]

    def write(self, path: Path, metadata: Mapping[str, str]) -> WrittenFile:
        """Write the buffers after the round. metadata: of its model, by which the next round knows them."""
        known = {"format": FORMAT, "version": VERSION, RUN: self.run.text, STEPS: str(self.steps)}
        return write_tensor_file(path, self._specs(), self._after(), {**metadata, **known})

    def _after(self) -> Iterator[Array]:
        for spec in trained_specs(self._base):
            for start, stop in tile_ranges(spec.elements):
                after = self._advance(spec.name, start, stop)[1]
                yield apply_seal(after, self._next_seal, spec.name, start * after.shape[1])

    def _advance(self, tensor: str, start: int, stop: int) -> tuple[Array, Array]:
        count = len(self.run.decays)
        if self._before is None:
            buffers = np.zeros((stop - start, count))
        else:
            flat = self._before.read_range(f"{tensor}.buffers", start * count, stop * count)
            opened = apply_seal(flat.astype(np.float64), self._seal, tensor, start * count)
            buffers = opened.reshape(-1, count)
        return self._blt.row(self._stream.normals(tensor, start, stop), buffers), buffers

    def _specs(self) -> list[TensorSpec]:
        count = len(self.run.decays)
        return [TensorSpec(f"{spec.name}.buffers", "F64", (*spec.shape, count)) for spec in trained_specs(self._base)]


def seal_of(noise_key: bytes) -> bytes:
    """The seal of a round's buffers: of its noise key, so that a round that is closed again writes the same bytes."""
    return hashlib.sha256(DOMAIN + noise_key).digest()


def apply_seal(numbers: Array, seal: bytes | None, tensor: str, start: int) -> Array:
    """float64 numbers from position `start` of a tensor on, sealed in place; or opened, if they were. None: as is."""
    if seal is None:
        return numbers
    bits, stop = numbers.reshape(-1).view(np.uint64), start + numbers.size
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        stream = hashlib.shake_256(seal + struct.pack("<Q", block) + tensor.encode())
        words = np.frombuffer(stream.digest(8 * BLOCK), "<u8")
        low, high = max(start, first), min(stop, first + BLOCK)
        bits[low - start : high - start] ^= words[low - first : high - first]
    return numbers
