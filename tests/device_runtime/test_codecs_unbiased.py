"""Codecs that claim it are unbiased: over many seeds, the mean of what is decoded is what was encoded.

It is asked of the reference, which writes no files; tests/native/test_updates.py holds the library's bytes to it.
"""

import functools
import math

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import Array
from tests.reference import codecs
from tests.reference.codecs import BLOCK, ENCODERS, Encode, draw_rows, encode_top_rows

SEEDS = 120
ROWS = 96
SHAPE = (ROWS, 48)  # more than a block: less would travel whole as top-rows, nothing drawn


def decoded_deltas(encode: Encode, delta: Array, seeds: int, codec: str = "") -> Array:
    """[seeds, elements] float64: what each seed makes of the same delta."""
    base = np.zeros(delta.shape, "<f4")
    return np.stack(
        [codecs.decode(codec, "a", base, encode("a", base, delta, seed), seed).reshape(-1) for seed in range(seeds)]
    ).astype(np.float64)


def deltas(kind: str) -> Array:
    random = np.random.default_rng(5)
    noise = random.normal(size=SHAPE)
    rows = {
        "gaussian": np.ones(ROWS),
        "rows of any length": 10 ** random.uniform(-2, 1, ROWS),
        "few rows": (np.arange(ROWS) % 5 == 0).astype(float),
    }
    return (noise * rows[kind][:, None]).astype("<f4")


UNBIASED = {
    **{name: ENCODERS[name] for name in ("delta-int8", "rot-q4", "rot-q2", "rot-q1")},
    "top-rows": functools.partial(encode_top_rows, most=24, bits=1),
    "few top-rows": functools.partial(encode_top_rows, most=12, bits=2),
}


CASES = [(codec, "rows of any length") for codec in UNBIASED]
CASES += [("delta-int8", "few rows"), ("top-rows", "gaussian")]


@pytest.mark.parametrize(("codec", "kind"), CASES)
def test_the_mean_over_seeds_is_the_delta(codec: str, kind: str) -> None:
    delta = deltas(kind)[: 24 if codec.startswith("rot-") else ROWS]
    found = decoded_deltas(UNBIASED[codec], delta, SEEDS, codec)
    errors = found - delta.reshape(-1)
    # Projections of the mean error on 50 fixed directions, the delta's own among them, in standard errors. Were there
    # no bias, all 50 would stay below 4.9 with probability 1 - 50·1e-6 (normal approximation).
    random = np.random.default_rng(9)
    directions = np.vstack(
        [
            delta.reshape(1, -1),
            delta.reshape(1, -1) * (np.arange(delta.size) < delta.size // 2),
            random.normal(size=(48, delta.size)) * np.abs(delta).reshape(1, -1),
        ]
    )
    projected = errors @ directions.T
    spread = projected.std(axis=0, ddof=1) / math.sqrt(SEEDS)
    scale = np.linalg.norm(directions, axis=1) * np.linalg.norm(delta)
    assert (np.abs(projected.mean(axis=0)) <= 4.9 * spread + 1e-5 * scale).all()
    # And the mean error is as small as chance allows: its square is errors² / SEEDS on average.
    ratio = np.square(errors.mean(axis=0)).sum() / (np.square(errors).sum() / SEEDS**2)
    assert ratio < 2


# Magnitudes of the few elements of a block that are not 0.
SPARSE = {"two": (1.0, 0.3), "three": (1.0, 0.5, 0.2), "one and many": (1.0, *[0.02] * 40)}


def sparse_block(size: int, magnitudes: tuple[float, ...]) -> Array:
    """Elements of these magnitudes at places of a block, the first two half a block apart."""
    block = np.zeros(size, "<f4")
    places = (3 + np.arange(len(magnitudes)) * (size // 2 + 1)) % size
    block[places] = np.array(magnitudes) * (-1) ** np.arange(len(magnitudes))
    return block


def decoded_blocks(block: Array, bits: int) -> Array:
    """[SEEDS, elements] float64: what each seed makes of one block."""
    return decoded_deltas(ENCODERS[f"rot-q{bits}"], block.reshape(1, -1), SEEDS)


@pytest.mark.parametrize(
    ("bits", "size", "kind"),
    [(1, BLOCK, "two"), (1, 128, "three"), (1, 128, "one and many"), (2, 128, "two"), (4, 128, "three")],
)
def test_a_block_of_which_little_moved_is_right_on_average(bits: int, size: int, kind: str) -> None:
    block = sparse_block(size, SPARSE[kind])
    errors = decoded_blocks(block, bits) - block
    spread = errors.std(axis=0, ddof=1) / math.sqrt(SEEDS)
    # Of 4096 elements all stay below 5.7 with probability 1 - 5e-5; float32 adds its own rounding.
    assert (np.abs(errors.mean(axis=0)) <= 5.7 * spread + 1e-6).all()


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_every_seed_keeps_the_product_with_the_delta(bits: int) -> None:
    block = sparse_block(512, SPARSE["three"])
    found = decoded_blocks(block, bits)
    assert found @ block == pytest.approx(np.square(block, dtype=np.float64).sum(), rel=1e-5)


@pytest.mark.parametrize("most", [1, 7, 39, 50])
def test_just_as_many_rows_are_drawn_as_may_be_and_each_as_often_as_it_should(most: int) -> None:
    norms = np.random.default_rng(3).exponential(size=50) ** 3
    norms[::5] = 0
    drawn = np.zeros(50)
    chances = np.zeros(50)
    times = 1000
    for uniform in (np.arange(times) + 0.5) / times:
        rows, found = draw_rows(norms, most, float(uniform))
        assert len(rows) == min(most, 40)
        assert (np.diff(rows) > 0).all()
        drawn[rows] += 1 / times
        chances[rows] = found
    assert chances.sum() == pytest.approx(min(most, 40), abs=50 / times)  # the rarest were never drawn
    assert np.abs(drawn - chances).max() <= 1 / times + 1e-9  # `uniform` was laid out evenly
    by_chance = (chances > 0) & (chances < 1)
    if by_chance.any():
        assert np.ptp(chances[by_chance] / norms[by_chance]) < 1e-12 * (chances / norms.clip(1e-30)).max()
        assert norms[chances == 1].min(initial=np.inf) >= norms[by_chance].max()
