import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS
from phonograd.server_agg.aggregation.packed_sums import BLOCK, pack_tile, read_packed


@settings(max_examples=100, deadline=None)
@given(length=st.integers(1, 5 * BLOCK), bits=st.integers(0, 62), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_a_packed_tile_is_the_same_again(length: int, bits: int, share: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    tile = random.integers(1 - (1 << bits), 1 << bits, length)
    tile[random.random(length) < share] = 0
    file = io.BytesIO(pack_tile(tile) + b"more")
    assert np.array_equal(read_packed(file, length), tile)
    assert file.read() == b"more"


@pytest.mark.parametrize(("most", "width"), [(0, 1), (127, 1), (128, 2), (-(1 << 15) + 1, 2), ((1 << 62) - 1, 8)])
def test_a_tile_takes_the_bytes_that_its_numbers_need(most: int, width: int) -> None:
    tile = np.zeros(TILE_ELEMENTS, np.int64)
    tile[:BLOCK] = most
    blocks = 1 if most else 0
    assert len(pack_tile(tile)) == 1 + TILE_ELEMENTS // BLOCK // 8 + blocks * BLOCK * width
