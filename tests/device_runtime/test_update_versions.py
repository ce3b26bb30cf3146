"""Updates of version 1, which phones may still send: written and read to the bits of the release that made them."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update.codecs import CODECS_OF
from phonograd.device_runtime.update.update_file import UpdateFile

# By that release: SHA-256, its first 16 digits, of the file and of the weights that it decodes to.
VERSION_1 = {
    "rot-q4": ("5ed53f74d3cd9677", "293464509b1de181"),
    "rot-q2": ("4f65ec64883f0fb9", "cba6b44658de5b34"),
    "rot-q1": ("92dc92ae14d6716b", "56ee4b8c1d8f06c7"),
    "top-rows": ("fd3db75520c721ae", "337dcedbd72fb7f3"),
}
SHAPES = {"embedding.weight": (90, 50), "decoder.bias": (70,)}
INFO = {"format": "phonograd-update", "base_sha256": "0" * 64, "round": "3", "tokens": "4000", "seed": "7"}


def steps(shape: tuple[int, ...], factor: int, first: int) -> Array:
    """Numbers in [-1/2, 1/2) that float32 holds exactly, of no generator that a release of numpy could change."""
    values = ((np.arange(int(np.prod(shape))) * factor + first) % 1009 - 504) / 1024
    return values.astype("<f4").reshape(shape)


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("codec", VERSION_1)
def test_version_1_is_written_and_read_to_the_same_bits(tmp_path: Path, codec: str) -> None:
    base = {name: steps(shape, 7919, 3) for name, shape in SHAPES.items()}
    trained = {name: base[name] + steps(shape, 104729, 11) / 64 for name, shape in SHAPES.items()}
    save_tensors(tmp_path / "base", base)
    with TensorFile(tmp_path / "base") as file:
        parts: dict[str, Array] = {}
        for name, spec in file.specs.items():
            parts |= CODECS_OF[1][codec].encode(spec, base[name], trained[name], 7)
        save_tensors(tmp_path / "update", parts, INFO | {"version": "1", "codec": codec})
        with UpdateFile(tmp_path / "update") as update:
            decoded = b"".join(values.tobytes() for values in update.weights(file).values())
    assert (short_hash((tmp_path / "update").read_bytes()), short_hash(decoded)) == VERSION_1[codec]
