"""Images with labels: MNIST's files, and images that the package makes itself."""

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.formats.tensor_file import Array

MAGIC_IMAGES, MAGIC_LABELS = 0x803, 0x801


@dataclass(frozen=True)
class Images:
    """pixels: [N, P] float32, 0 to 1; labels: [N] int64."""

    pixels: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def minibatches(self, size: int) -> int:
        """Whole minibatches of this size. Raises TrainingError for fewer images."""
        if len(self) < size:
            raise TrainingError(f"{len(self)} images: expected at least a minibatch, {size}")
        return len(self) // size

    def take(self, places: Array) -> "Images":
        """The images at these places."""
        return Images(self.pixels[places], self.labels[places])

    def permute(self, order: Array) -> "Images":
        """The same images with their pixels in another order [P]: as hard to learn, and new to a model."""
        return Images(np.ascontiguousarray(self.pixels[:, order]), self.labels)

    def and_also(self, others: "Images") -> "Images":
        """Both sets, one after the other."""
        return Images(np.concatenate([self.pixels, others.pixels]), np.concatenate([self.labels, others.labels]))


def load_mnist(folder: Path, part: str) -> Images:
    """MNIST's files in their own format, gzipped or not. part: "train" or "t10k". Raises TextError."""
    pixels = _idx(folder, f"{part}-images-idx3-ubyte", MAGIC_IMAGES)
    labels = _idx(folder, f"{part}-labels-idx1-ubyte", MAGIC_LABELS)
    if len(pixels) != len(labels):
        raise TextError(
            f"{folder}: {len(pixels)} images of {part!r} expected to have as many labels, found {len(labels)}"
        )
    return Images(pixels.reshape(len(pixels), -1).astype(np.float32) / 255, labels.astype(np.int64))


def _idx(folder: Path, name: str, magic: int) -> Array:
    path = next((path for path in (folder / f"{name}.gz", folder / name) if path.exists()), folder / name)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise TextError(f"{path}: cannot be read ({error}); expected a file of MNIST") from error
    rank = magic & 0xFF
    if len(data) < 4 + 4 * rank or struct.unpack_from(">I", data)[0] != magic:
        raise TextError(f"{path}: expected an idx file that begins with {magic:#x}")
    shape = struct.unpack_from(f">{rank}I", data, 4)
    if len(data) != 4 + 4 * rank + math.prod(shape):
        raise TextError(f"{path}: {shape} bytes of data expected, found {len(data) - 4 - 4 * rank}; is it truncated?")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def made_images(count: int, classes: int, pixels: int, seed: int, shown: int = 0) -> Images:
    """Images of `classes` random patterns under noise. The patterns follow from `seed`, the images from `shown` too."""
    patterns = np.random.default_rng(seed).random((classes, pixels)) > 0.5
    random = np.random.default_rng([seed, shown])
    labels = random.integers(0, classes, count)
    noise = random.normal(0, 0.6, (count, pixels))
    return Images((patterns[labels] + noise).clip(0, 1).astype(np.float32), labels)
