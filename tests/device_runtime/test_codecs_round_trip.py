"""What every codec owes: sizes as announced, nothing for nothing, the same file for the same seed, any shape."""

from pathlib import Path

import numpy as np
import pytest
from phonograd.device_runtime.update.top_rows import TopRows

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateFile
from tests.device_runtime.codec_files import LOSSLESS, Workshop, base_weights, trained_weights

# Largest error by the largest |delta| of a tensor: half a unit in the last of 11 or 8 bits, a step of int8's.
BOUNDS = {"full-f32": 0.0, "rows-f32": 0.0, "delta-f16": 2**-11, "delta-bf16": 2**-8, "delta-int8": 1 / 127}
# |error|² by |delta|² of a Gaussian: (1 - D) / D with the distortion D of Lloyd and Max, see `rotation.py`.
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
def test_bytes_are_as_announced(workshop: Workshop, codec: str) -> None:
    path = workshop.encode(trained_weights(workshop.base), codec)
    with TensorFile(workshop.path) as base:
        announced = CODECS[codec].nbytes(base.specs.values())
    assert (announced is None) == (codec not in ("full-f32", "rot-q4", "rot-q2", "rot-q1"))
    assert announced in (None, workshop.data_bytes(path))


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


def test_budgets_are_told_by_the_parts(workshop: Workshop) -> None:
    trained = trained_weights(workshop.base)
    with TensorFile(workshop.path) as base:
        spec = base.specs["decoder.weight"]
        for rows, bits in ((20, 1), (35, 2), (71, 4)):
            parts = TopRows(rows, bits).encode(spec, workshop.base[spec.name], trained[spec.name], 7)
            travelling = sum(int(byte).bit_count() for byte in parts.get("decoder.weight.rows", []))
            assert travelling == (rows if rows < 71 else 0)  # no mask where all rows travel
            assert len(parts["decoder.weight.levels"]) >= rows * 130 * bits / 8
