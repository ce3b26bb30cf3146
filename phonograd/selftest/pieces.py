"""What the self-test feeds to the engine: made of whole numbers, so that it is the same bits on every machine."""

import functools
import hashlib
import shutil
import tempfile
from pathlib import Path

import numpy as np

from phonograd.device_runtime.engine.backend import Ids, Window
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors

# The models' artifacts, and the results: tests/golden/make_selftest.py makes them.
GOLDEN = Path(__file__).parent / "golden"
MODELS = ("lstm", "gru-tied-lwf")
STEPS = 4
# Capitals, digits, signs, languages without blanks, an emoji of several characters, bytes that are no UTF-8, and lines
# that are no messages.
TRICKY = "Ｗ3 W4!! don't\tl’été İstanbul 12:30 a@b.c\r\n\n…\n日本語 w5w6 👩‍👩‍👧 naı̈ve ".encode() + b"w7 \xff\xfe w8\n"


def artifacts_of(model: str) -> Artifacts:
    """The artifacts of a model, held to their hashes. Raises ArtifactsError."""
    return open_artifacts(Path(_unpack().name) / model, verify=True)


@functools.cache
def _unpack() -> "tempfile.TemporaryDirectory[str]":
    place = tempfile.TemporaryDirectory(prefix="phonograd-selftest-")
    shutil.unpack_archive(GOLDEN / "artifacts.zip", place.name)
    return place


def words(count: int, seed: int) -> list[bytes]:
    """Messages of six words of the models' vocabulary, `count` words in all; a twentieth is unknown."""
    chosen = [b"w%d" % ((number * number + 31 * seed + 7 * number) % 137) for number in range(count)]
    return [b" ".join(chosen[start : start + 6]) for start in range(0, count, 6)]


def windows_of(artifacts: Artifacts) -> list[Window]:
    """Training windows, without the reader of text."""
    shape = (STEPS + 1, artifacts.manifest.training.bptt, artifacts.manifest.training.minibatch)
    count = np.arange(np.prod(shape), dtype=np.int64)
    ids: Ids = (count * count * 5 + count * 3 + 1) % artifacts.manifest.model.vocabulary
    parts = ids.reshape(shape)
    return [Window(parts[step], parts[step + 1]) for step in range(STEPS)]


def change_weights(artifacts: Artifacts, seed: int) -> dict[str, Array]:
    """Weights after a training that never was: some rows moved, by multiples of 2^-16."""
    trained = load_tensors(artifacts.path(WEIGHTS))
    for values in trained.values():
        flat = values.reshape(len(values), -1)
        for row in range(seed % 3, len(flat), 3):
            steps = (np.arange(flat.shape[1]) * 37 + row * 11 + seed) % 201 - 100
            flat[row] += steps.astype(np.float32) * np.float32(2**-16)
    return trained


def digest(*parts: bytes | Array) -> str:
    """The SHA-256 of bytes and arrays, one after the other."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return hashed.hexdigest()
