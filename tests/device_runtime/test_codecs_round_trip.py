"""What every codec owes: sizes as announced, nothing for nothing, the same file for the same seed, any shape."""

import functools
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo
from tests.device_runtime.codec_files import LOSSLESS, Workshop, base_weights, trained_weights
from tests.reference import codecs

# Largest error by the largest |delta| of a tensor: half a unit in the last of 11 or 8 bits, a step of int8's.
BOUNDS = {"full-f32": 0.0, "rows-f32": 0.0, "delta-f16": 2**-11, "delta-bf16": 2**-8, "delta-int8": 1 / 127}
# |error|² by |delta|² of a Gaussian: (1 - D) / D with the distortion D of Lloyd and Max, see tests/reference/codecs.py.
NOISE = {"rot-q4": 0.0096, "rot-q2": 0.133, "rot-q1": 0.571}
# Base and delta are added in float32: half a unit in the last place of weights below 8.
ADDITION = 2.0**-22


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("codecs"), base_weights())


@pytest.mark.parametrize("codec", BOUNDS)
def test_errors_are_bounded(workshop: Workshop, codec: str) -> None:
    trained = trained_weights(workshop.base)
    decoded = workshop.round_trip(trained, codec)
    for name, array in trained.items():
        largest = np.abs(array - workshop.base[name]).max()
        slack = 0 if codec in LOSSLESS else ADDITION
        assert np.abs(decoded[name] - array).max() <= BOUNDS[codec] * largest + slack


@pytest.mark.parametrize("codec", NOISE)
def test_rotated_errors_are_those_of_the_lloyd_max_quantiser(workshop: Workshop, codec: str) -> None:
    trained = trained_weights(workshop.base)
    decoded = workshop.round_trip(trained, codec)
    name = "decoder.weight"
    error = np.square(decoded[name] - trained[name], dtype=np.float64).sum()
    delta = np.square(trained[name] - workshop.base[name], dtype=np.float64).sum()
    assert error / delta == pytest.approx(NOISE[codec], rel=0.1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_model_that_did_not_move_comes_back_to_the_bit_and_costs_next_to_nothing(
    workshop: Workshop, codec: str
) -> None:
    path = workshop.encode(workshop.base, codec)
    assert {name: array.tobytes() for name, array in workshop.decode(path).items()} == {
        name: array.tobytes() for name, array in workshop.base.items()
    }
    if codec.startswith(("delta-", "top-rows")):
        assert workshop.data_bytes(path) == 0


@pytest.mark.parametrize("codec", [name for name in CODECS if name.startswith(("rows-", "delta-", "top-rows"))])
def test_rows_that_did_not_move_stay_the_base_to_the_bit(workshop: Workshop, codec: str) -> None:
    decoded = workshop.round_trip(trained_weights(workshop.base), codec)
    still = np.arange(300) % 4 > 0
    assert decoded["embedding.weight"][still].tobytes() == workshop.base["embedding.weight"][still].tobytes()
    assert (decoded["embedding.weight"] != workshop.base["embedding.weight"]).any()


@pytest.mark.parametrize("codec", ["delta-int8", "top-rows"])
def test_a_row_that_did_not_move_costs_a_bit(tmp_path: Path, codec: str) -> None:
    sizes = []
    for rows in (400, 8400):
        base = {"embedding.weight": np.zeros((rows, 40), "<f4")}
        trained = {"embedding.weight": base["embedding.weight"].copy()}
        trained["embedding.weight"][:100] = 1.0
        workshop = Workshop(tmp_path, base)
        sizes.append(workshop.data_bytes(workshop.encode(trained, codec)))
    assert sizes[1] - sizes[0] == 8000 // 8


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_seed_writes_the_same_file_and_another_one_another(workshop: Workshop, codec: str) -> None:
    trained = trained_weights(workshop.base)
    first, again, other = (workshop.decode(workshop.encode(trained, codec, seed)) for seed in (3, 3, 4))
    same = [first[name].tobytes() == other[name].tobytes() for name in trained]
    assert all(first[name].tobytes() == again[name].tobytes() for name in trained)
    assert all(same) == (not codec.startswith(("delta-int8", "rot-", "top-rows")))


@pytest.mark.parametrize("codec", CODECS)
def test_tiles_rise_and_do_not_overlap(workshop: Workshop, codec: str) -> None:
    path = workshop.encode(trained_weights(workshop.base), codec)
    with UpdateFile(path) as update, TensorFile(workshop.path) as base:
        for spec in base.specs.values():
            end = 0
            for start, values in update.tiles(spec, base):
                assert start >= end
                assert (values.dtype, values.ndim) == (np.float32, 1)
                end = start + len(values)
            assert end <= spec.elements


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("delta", [1e-45, 1e-30, 3e38, -3e38])
def test_deltas_of_any_size_are_read_back_finite(tmp_path: Path, codec: str, delta: float) -> None:
    workshop = Workshop(tmp_path, {"a": np.zeros((3, 70), "<f4"), "b": np.full(5, 1, "<f4")})
    trained = {name: array.copy() for name, array in workshop.base.items()}
    trained["a"][1, 3] = delta
    assert np.isfinite(workshop.round_trip(trained, codec)["a"]).all()


@pytest.mark.parametrize(("rows", "bits"), [(20, 1), (35, 2), (71, 4)])
def test_budgets_are_told_by_the_parts(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, rows: int, bits: int
) -> None:
    """A sender may choose them; no mask is sent where all rows are."""
    chosen = functools.partial(codecs.encode_top_rows, most=rows, bits=bits)
    monkeypatch.setattr(codecs, "ENCODERS", {"top-rows": chosen})
    path, trained = workshop.folder / "budget", trained_weights(workshop.base)
    with TensorFile(workshop.path) as base:
        codecs.write_update(path, base, trained, UpdateInfo(workshop.sha256, 3, 4000, "top-rows", 7))
        expected = codecs.decoded(path, base)
    parts, _ = codecs.read_parts(path)
    assert ("decoder.weight.rows" in parts) == (rows < 71)
    for name, values in workshop.decode(path).items():
        np.testing.assert_array_equal(values, expected[name], name)
