"""Codecs that claim it are unbiased: over many seeds, the mean of what is decoded is what was encoded."""

import math
from pathlib import Path

import numpy as np
import pytest
from phonograd.device_runtime.update.codec import Codec
from phonograd.device_runtime.update.rotated import sign_streams
from phonograd.device_runtime.update.rotation import BLOCK, ROTATIONS, dequantise, quantise, tiles
from phonograd.device_runtime.update.row_sampling import draw_rows, row_norms
from phonograd.device_runtime.update.top_rows import TopRows
from safetensors.numpy import save_file

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec
from phonograd.device_runtime.update.codecs import CODECS

SEEDS = 400
ROWS = 96
SPEC = TensorSpec("a", "F32", (ROWS, 48))  # more than a block: less would travel whole as top-rows, nothing drawn


def decoded_deltas(codec: Codec, folder: Path, delta: Array, seeds: int) -> Array:
    """[seeds, elements] float64: what each seed makes of the same delta."""
    base = np.zeros(delta.shape, "<f4")
    save_file({"a": base}, folder / "base")
    found = np.zeros((seeds, delta.size))
    with TensorFile(folder / "base") as base_file:
        for seed in range(seeds):
            # Not by our own writer: it waits for the disk, thousands of times here.
            save_file(codec.encode(SPEC, base, delta, seed), folder / "update")
            with TensorFile(folder / "update") as update:
                for start, values in codec.decode(SPEC, update, base_file, seed):
                    found[seed, start : start + len(values)] = values
    return found


def deltas(kind: str) -> Array:
    random = np.random.default_rng(5)
    noise = random.normal(size=SPEC.shape)
    rows = {
        "gaussian": np.ones(ROWS),
        "rows of any length": 10 ** random.uniform(-2, 1, ROWS),
        "few rows": (np.arange(ROWS) % 5 == 0).astype(float),
    }
    return (noise * rows[kind][:, None]).astype("<f4")


@pytest.mark.parametrize("kind", ["gaussian", "rows of any length", "few rows"])
@pytest.mark.parametrize(
    "codec",
    [CODECS[name] for name in ("delta-int8", "rot-q4", "rot-q2", "rot-q1")] + [TopRows(24, 1), TopRows(12, 2)],
    ids=lambda codec: f"{codec.name}",
)
def test_the_mean_over_seeds_is_the_delta(tmp_path: Path, codec: Codec, kind: str) -> None:
    delta = deltas(kind)
    found = decoded_deltas(codec, tmp_path, delta, SEEDS)
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


def test_largest_rows_only_would_be_found_biased(tmp_path: Path) -> None:
    """The test above can fail: sure rows without the others by chance lack a part of the delta."""

    class Largest(TopRows):
        def encode(self, spec: TensorSpec, base: Array, trained: Array, seed: int) -> dict[str, Array]:
            kept = np.argsort(-row_norms(trained - base))[:24]
            cut = base.copy()
            cut[kept] = trained[kept]
            return super().encode(spec, base, cut, seed)

    delta = deltas("gaussian")
    errors = decoded_deltas(Largest(ROWS, 1), tmp_path, delta, SEEDS) - delta.reshape(-1)
    assert np.square(errors.mean(axis=0)).sum() / (np.square(errors).sum() / SEEDS**2) > 20


# Magnitudes of the few elements of a block that are not 0.
SPARSE = {"two": (1.0, 0.3), "three": (1.0, 0.5, 0.2), "one and many": (1.0, *[0.02] * 40)}


def sparse_block(size: int, magnitudes: tuple[float, ...]) -> Array:
    """Elements of these magnitudes at places of a block, the first two half a block apart."""
    block = np.zeros(size, "<f4")
    places = (3 + np.arange(len(magnitudes)) * (size // 2 + 1)) % size
    block[places] = np.array(magnitudes) * (-1) ** np.arange(len(magnitudes))
    return block


def decoded_blocks(block: Array, bits: int, rotations: int) -> Array:
    """[SEEDS, elements] float64: what each seed makes of one block."""
    (tile,) = tiles(len(block))
    found = np.zeros((SEEDS, len(block)))
    for seed in range(SEEDS):
        streams = sign_streams("a", seed)[:rotations]
        found[seed] = dequantise(tile, *quantise(block, bits, streams), bits, streams)
    return found


@pytest.mark.parametrize("magnitudes", SPARSE.values(), ids=SPARSE)
@pytest.mark.parametrize("size", [128, BLOCK])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_block_of_which_little_moved_is_right_on_average(bits: int, size: int, magnitudes: tuple[float, ...]) -> None:
    block = sparse_block(size, magnitudes)
    errors = decoded_blocks(block, bits, ROTATIONS) - block
    spread = errors.std(axis=0, ddof=1) / math.sqrt(SEEDS)
    # Of 4096 elements all stay below 5.7 with probability 1 - 5e-5; float32 adds its own rounding.
    assert (np.abs(errors.mean(axis=0)) <= 5.7 * spread + 1e-6).all()


@pytest.mark.parametrize(("bits", "bias"), [(1, 0.30), (2, 0.21)])
def test_a_single_rotation_would_be_found_biased(bits: int, bias: float) -> None:
    """The test above can fail: y has two magnitudes, 1.3 and 0.7, and all seeds round them alike."""
    block = sparse_block(BLOCK, SPARSE["two"])
    errors = decoded_blocks(block, bits, rotations=1) - block
    assert np.linalg.norm(errors.mean(axis=0)) == pytest.approx(bias * np.linalg.norm(block), abs=0.01)
    assert errors.std(axis=0).max() < 1e-6


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_every_seed_keeps_the_product_with_the_delta(bits: int) -> None:
    block = sparse_block(BLOCK, SPARSE["three"])
    found = decoded_blocks(block, bits, ROTATIONS)
    assert found @ block == pytest.approx(np.square(block, dtype=np.float64).sum(), rel=1e-5)


def test_int8_is_off_by_less_than_a_step(tmp_path: Path) -> None:
    delta = deltas("rows of any length")
    found = decoded_deltas(CODECS["delta-int8"], tmp_path, delta, 5).reshape(5, *delta.shape)
    assert (np.abs(found - delta) <= np.abs(delta).max(axis=1, keepdims=True) / 127 * 1.0001).all()


@pytest.mark.parametrize("most", [1, 7, 39, 40, 50])
def test_just_as_many_rows_are_drawn_as_may_be_and_each_as_often_as_it_should(most: int) -> None:
    norms = np.random.default_rng(3).exponential(size=50) ** 3
    norms[::5] = 0
    drawn = np.zeros(50)
    chances = np.zeros(50)
    times = 4000
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
