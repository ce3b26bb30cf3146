"""A codec of your own: each weight's change becomes -1, 0 or 1 times a scale of its tensor, and zlib packs them.

In this folder, or with it on PYTHONPATH:

    phonograd serve --artifacts ARTIFACTS --state STATE --codec own_codec:Ternary
    phonograd train ARTIFACTS --user TEXT --server URL --phone NAME --codec own_codec:Ternary --deviations 3
    phonograd simulate ARTIFACTS --users USERS --out OUT --codec own_codec:Ternary --deviations 3

What a codec may assume is in docs/updates.md, "A codec of your own". After Wen et al. 2017, TernGrad.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from phonograd import Codec, UpdateError

Floats = npt.NDArray[np.float32]


class Ternary(Codec):
    """Unbiased but for the clipping: a change d becomes its sign times the scale with the chance |d| / scale."""

    @dataclass(frozen=True)
    class Settings:
        """Each field is an option of `train` and `simulate`. Raises ValueError for one that is out of range."""

        deviations: float = field(default=2.5, metadata={"help": "Largest change, in standard deviations."})

        def __post_init__(self) -> None:
            if not 0 < self.deviations < 1e6:
                raise ValueError(f"`deviations` is {self.deviations}, expected more than 0, below 1e6")

    own: Settings  # those of this update

    def encode(self, deltas: Mapping[str, Floats], seed: int) -> bytes:
        """A float32 scale of each tensor, then all signs, an int8 each, compressed."""
        random = np.random.default_rng(seed)  # phones have different seeds, so that their errors average out
        scales, signs = [], []
        for delta in deltas.values():
            sizes = np.abs(delta)
            scale = np.float32(min(sizes.max(initial=0), self.own.deviations * delta.std(dtype=np.float64)))
            chosen = random.random(delta.shape, np.float32) * scale < sizes
            scales.append(scale)
            signs.append((np.sign(delta) * chosen).astype(np.int8).tobytes())
        return np.array(scales, "<f4").tobytes() + zlib.compress(b"".join(signs))

    def decode(self, payload: bytes, shapes: Mapping[str, tuple[int, ...]], seed: int) -> Mapping[str, Floats]:
        """Signs times scales. A stranger's bytes are held to the sizes that the model says."""
        del seed
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        start = 4 * len(shapes)
        try:
            packed = zlib.decompressobj().decompress(payload[start:], sum(sizes) + 1)
        except zlib.error as error:
            raise UpdateError(f"damaged: {error}") from error
        if len(packed) != sum(sizes):
            raise UpdateError(f"{sum(sizes)} signs expected, found {len(packed)} or more")
        scales = np.frombuffer(payload[:start], "<f4")
        signs = np.split(np.frombuffer(packed, np.int8), np.cumsum(sizes)[:-1])
        return {
            name: (part.astype(np.float32) * scale).reshape(shape)
            for (name, shape), part, scale in zip(shapes.items(), signs, scales, strict=True)
        }
