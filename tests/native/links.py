"""Random links from a model, and the model that the reference makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorSpec, save_tensors
from phonograd.device_runtime.update.links import LinkCodec
from tests.reference.codecs import link_metadata, mask, rotated_parts, write_link

# Blocks of every kind: several, a short one at the end, one of 64; rows that do not divide a block, and rows of one.
SHAPES = {"table": (300, 37), "gates": (1, 40, 6), "bias": (1, 70), "vector": (9000,), "column": (130, 1), "one": (1,)}
SPECS = {name: TensorSpec(name, "F32", shape) for name, shape in SHAPES.items()}
Made = tuple[Path, str]  # a file of links, and the hash of the model that it leads to


def row_count(spec: TensorSpec) -> int:
    return spec.elements // spec.row


def rows_parts(random: np.random.Generator, spec: TensorSpec, model: Mapping[str, Array]) -> dict[str, Array]:
    """rows-f32: the whole tensor, or some of its rows, or none."""
    kind = random.integers(3)
    values = model[spec.name].reshape(row_count(spec), spec.row) + random.normal(size=(row_count(spec), spec.row))
    if kind == 0:
        return {spec.name: values.astype("<f4").reshape(spec.shape)}
    share = random.random() if kind == 1 else 0.0
    rows = np.flatnonzero(random.random(row_count(spec)) < share).astype("<u4")
    return {f"{spec.name}.rows": rows, f"{spec.name}.values": values.astype("<f4")[rows]}


def top_parts(random: np.random.Generator, spec: TensorSpec, seed: int) -> dict[str, Array]:
    """top-rows: all rows, some of them, or no part; at any bits, with blocks of scale 0 among the others."""
    share = random.choice([0.0, 0.1, 0.7, 1.0])
    rows = np.flatnonzero(random.random(row_count(spec)) < share)
    if not len(rows):
        return {}
    values = random.normal(scale=random.choice([1e-30, 1e-3, 1e3]), size=len(rows) * spec.row).astype(np.float32)
    values[: 4096 * random.integers(2)] = 0
    rotated = rotated_parts(spec.name, values, int(random.choice([1, 2, 4])), seed, nearest=bool(random.integers(2)))
    return {**mask(spec.name, rows, row_count(spec)), **rotated}


@dataclass
class Folder:
    """A base model, and the model on the phone, `out`."""

    folder: Path

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def out(self) -> Path:
        return self.folder / "out"


@dataclass
class Chain(Folder):
    """A base and a file of random links from it. `trained`: the tensors that are not frozen."""

    random: np.random.Generator
    trained: list[str]

    def make(self, links: int) -> Made:
        """The links, and at `expected` the model that the reference makes of them."""
        frozen = ",".join(name for name in SHAPES if name not in self.trained)
        metadata = {"frozen": frozen} if frozen else {}
        model = {name: self.random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}
        for values in model.values():
            values.reshape(-1)[::3] = -0.0
        save_tensors(self.base, model, metadata)
        joined, before, sha256 = b"", self.base, sha256_of_file(self.base)
        for number in range(1, links + 1):
            link, after = self.folder / f"link-{number}", self.folder / f"model-{number}"
            kind: LinkCodec = "rows-f32" if self.random.integers(2) else "top-rows"
            seed = int(link_metadata(sha256, number, kind, "", {})["seed"])
            parts: dict[str, Array] = {}
            for spec in map(SPECS.__getitem__, self.trained):
                rows = kind == "rows-f32"
                parts |= rows_parts(self.random, spec, model) if rows else top_parts(self.random, spec, seed)
            result = {"round": str(number), "name": 'é "\\\n\x7f', **metadata}
            sha256 = write_link(link, after, before, parts, kind, number, result).sha256
            joined += link.read_bytes()
            before = after
        (self.folder / "fetched").write_bytes(joined)
        before.rename(self.folder / "expected")
        return self.folder / "fetched", sha256

    @property
    def expected(self) -> bytes:
        return (self.folder / "expected").read_bytes()
