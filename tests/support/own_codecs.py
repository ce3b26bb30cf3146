"""Codecs of one's own for tests: one that is lossless, and has the fault that its settings name."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.update.own_codec import Codec


def refuse() -> None:
    raise UpdateError("not what I wrote")


def fail() -> None:
    raise RuntimeError("the server's own secret")


FAILING: Mapping[str, Callable[[], Any]] = {
    "raises": fail,
    "damaged": refuse,
    "memory": lambda: np.empty(1 << 28, np.float32),  # 1 GiB
    "exits": lambda: sys.exit(0),
    "dies": os.abort,
    "hangs": lambda: time.sleep(1e6),
}
SPOILT: Mapping[str, Callable[[Floats], Any]] = {
    "shape": lambda delta: delta[:-1],
    "dtype": lambda delta: delta.astype(np.float64),
    "type": lambda delta: delta.tolist(),
    "nan": lambda delta: delta * np.float32("nan"),
    "infinity": lambda delta: delta + np.float32("inf"),
    "far": lambda delta: delta + np.float32(2.0**31),
}


class Faulty(Codec):
    @dataclass(frozen=True)
    class Settings:
        fault: str = ""

        def __post_init__(self) -> None:
            if self.fault == "bounds":
                raise ValueError("`fault` is 'bounds', expected another one")

    own: Settings

    def encode(self, deltas: Mapping[str, Floats], seed: int) -> bytes:
        if self.own.fault == "encode":
            raise KeyError("mine")
        encoded = b"".join(delta.tobytes() for delta in deltas.values())
        return encoded.hex() if self.own.fault == "text" else encoded  # type: ignore[return-value]

    def decode(self, payload: bytes, shapes: Mapping[str, tuple[int, ...]], seed: int) -> Mapping[str, Floats]:
        found, at = dict[str, Any](), 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            found[name] = np.frombuffer(payload, np.float32, size, at).reshape(shape)
            at += 4 * size
        first = next(iter(shapes))
        if self.own.fault in FAILING:
            FAILING[self.own.fault]()
        if self.own.fault in SPOILT:
            found[first] = SPOILT[self.own.fault](found[first])
        if self.own.fault == "missing":
            del found[first]
        if self.own.fault == "unknown":
            found["mine"] = found[first]
        return found
