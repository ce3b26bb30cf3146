"""Tiles of sums as bytes, for the way to another process: blocks of zeros are left out, and so are leading bytes.

Each tile is: the bytes of a number, 1 to 8, uint8; a bit for each block of BLOCK numbers, set if it is there, the last
byte filled with zeros; the numbers of these blocks, little endian, two's complement. A tile's last block is filled with
zeros.
"""

from typing import BinaryIO

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array

BLOCK = 64  # a row of a matrix has some of them


def pack_tile(tile: Array) -> bytes:
    """A tile of int64, |number| < 2**62, packed."""
    blocks = np.zeros((-(-len(tile) // BLOCK), BLOCK), "<i8")
    blocks.reshape(-1)[: len(tile)] = tile
    there = blocks.any(axis=1)
    numbers = blocks[there]
    most = max(int(numbers.max()), -int(numbers.min())) if len(numbers) else 0
    width = most.bit_length() // 8 + 1  # with the sign's bit
    kept = numbers.view(np.uint8).reshape(-1, 8)[:, :width]
    return b"".join((bytes([width]), np.packbits(there).tobytes(), kept.tobytes()))


def read_packed(file: BinaryIO, length: int) -> Array:
    """The next tile, of `length` numbers. Raises ValueError or IndexError for other bytes than `pack_tile` gave."""
    count = -(-length // BLOCK)
    width = file.read(1)[0]
    there = np.unpackbits(np.frombuffer(file.read(-(-count // 8)), np.uint8), count=count).astype(bool)
    kept = np.frombuffer(file.read(int(there.sum()) * BLOCK * width), np.uint8).reshape(-1, width)
    numbers = np.zeros((len(kept), 8), np.uint8)
    numbers[:, 8 - width :] = kept
    blocks = np.zeros((count, BLOCK), np.int64)
    blocks[there] = (numbers.view("<i8") >> 8 * (8 - width)).reshape(-1, BLOCK)
    return blocks.reshape(-1)[:length]
