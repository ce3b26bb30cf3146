"""Rotations by the library: NumPy's bits, and NumPy where there is no library."""

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from phonograd.device_runtime.update.rotation import BLOCK, dequantise, quantise, tiles

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine import c_abi
from phonograd.device_runtime.engine.c_abi import available_library, load_library
from phonograd.device_runtime.update import rotation

STREAMS = (7, 2**64 - 1, 0)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    load_library()
    available_library.cache_clear()
    yield
    available_library.cache_clear()


@pytest.mark.parametrize("elements", [1, 64, 100, BLOCK, BLOCK + 1, 70 * BLOCK + 700])
@pytest.mark.parametrize("streams", [(), STREAMS[:1], STREAMS])
def test_both_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, elements: int, streams: tuple[int, ...]) -> None:
    values = np.random.default_rng(elements).standard_normal(elements).astype(np.float32)
    values[::3] = -0.0
    found = []
    for where in ("library", "NumPy"):
        if where == "library":
            monkeypatch.setattr(rotation, "_hadamard", None)  # not called
        else:
            monkeypatch.undo()
            monkeypatch.setattr(rotation, "available_library", lambda: None)
        scales, levels = quantise(values, 4, streams)
        decoded = [
            dequantise(tile, scales[tile.block :][: tile.count], levels[tile.start // 2 : tile.stop // 2], 4, streams)
            for tile in tiles(elements)
        ]
        found.append([part.tobytes() for part in (scales, levels, *decoded)])
    assert found[0] == found[1]


def test_arguments_that_fit_no_block_are_refused() -> None:
    library, x = load_library(), np.zeros(8192, np.float32)
    streams = np.array(STREAMS, np.uint64)
    for blocks, size, start, rotations, message in (
        (1, 32, 0, 3, "size: 32; expected a power of two from 64 to 4096"),
        (1, 96, 0, 3, "size: 96"),
        (1, 8192, 0, 3, "size: 8192"),
        (-1, 64, 0, 3, "below 0"),
        (1, 64, -64, 3, "below 0"),
        (1, 64, 32, 3, "no multiple of 64"),
        (1, 64, 0, -1, "below 0"),
    ):
        with pytest.raises(UsageError, match=message):
            library.call("pg_rotate", x.ctypes.data, blocks, size, start, streams.ctypes.data, rotations, 0)
    for data, signs in ((None, streams.ctypes.data), (x.ctypes.data, None)):
        with pytest.raises(UsageError, match="x or streams: NULL"):
            library.call("pg_rotate", data, 1, 64, 0, signs, 3, 0)
    assert not x.any()


def test_nothing_is_compiled_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_abi, "PACKAGED_LIBRARY", tmp_path / "none.so")
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "empty"))
    assert available_library() is None
    assert not list((tmp_path / "empty").rglob("*.o"))


def test_a_library_that_does_not_load_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a library")
    monkeypatch.setattr(c_abi, "PACKAGED_LIBRARY", damaged)
    assert available_library() is None


def test_other_systems_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert available_library() is None
