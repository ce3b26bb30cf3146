"""Updates: byte for byte those of the reference (tests/reference/codecs.py), and what every codec owes."""

import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata, trained_specs
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import MAX_COUNT, UpdateFile, UpdateInfo
from tests.native.codec_files import SHAPES, Workshop
from tests.reference import codecs

# Largest error by the largest |delta| of a tensor: half a unit in the last of 11 or 8 bits, a step of int8's.
BOUNDS = {"full-f32": 0.0, "rows-f32": 0.0, "delta-f16": 2**-11, "delta-bf16": 2**-8, "delta-int8": 1 / 127}
# |error|² by |delta|² of a Gaussian: (1 - D) / D with the distortion D of Lloyd and Max, see tests/reference/codecs.py.
NOISE = {"rot-q4": 0.0096, "rot-q2": 0.133, "rot-q1": 0.571}
# Base and delta are added in float32: half a unit in the last place of weights below 8.
ADDITION = 2.0**-22
every_codec = pytest.mark.parametrize("codec", CODECS)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("updates"))


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A tensor is larger than the piece of the base that is compared at a time, in rows that do not divide it."""
    base = Workshop(tmp_path_factory.mktemp("small")).base
    return Workshop(tmp_path_factory.mktemp("larger"), {**base, "table": np.ones((3001, 97), "<f4")})


ROWS = st.lists(st.integers(0, 3000), max_size=60)


@every_codec
@given(st.dictionaries(st.sampled_from(["table", *SHAPES]), ROWS), st.integers(0, MAX_COUNT))
@settings(max_examples=3, deadline=None)
def test_updates_are_the_references(larger: Workshop, codec: str, rows: dict[str, list[int]], number: int) -> None:
    info = UpdateInfo(larger.sha256, number // 3, max(1, number // 2), codec, number)
    larger.round_trip(larger.move_rows(rows), info)
    with UpdateFile(larger.folder / "update") as update:
        assert update.info == info


SCALES = (1e-30, 1e-6, 1e-3, 1.0, 1e6, 1e36)


@pytest.mark.parametrize(
    ("codec", "scale"), [(codec, SCALES[(3 * n + m) % 6]) for n, codec in enumerate(CODECS) for m in range(3)]
)
def test_deltas_of_every_size(tmp_path: Path, codec: str, scale: float) -> None:
    random = np.random.default_rng(int(scale * 100) % 997)
    made = {name: random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}
    if scale < 1e-9:  # so that the smallest deltas are not rounded away
        made = {name: np.zeros_like(array) for name, array in made.items()}
    workshop = Workshop(tmp_path, made)
    trained: dict[str, Array] = {}
    for name, array in made.items():
        spread = random.exponential(size=(*array.shape[:-1], 1)) * (random.random((*array.shape[:-1], 1)) < 0.7)
        trained[name] = (array + spread * random.normal(scale=scale, size=array.shape)).astype("<f4")
    workshop.round_trip(trained, codec)


@every_codec
def test_single_deltas_at_the_limits_are_read_back_finite(tmp_path: Path, codec: str) -> None:
    workshop = Workshop(tmp_path, {"a": np.zeros((3, 70), "<f4"), "b": np.full(5, 1, "<f4")})
    for delta in (1e-45, 1e-30, 3e38, -3e38):
        trained = {name: array.copy() for name, array in workshop.base.items()}
        trained["a"][1, 3] = delta
        assert np.isfinite(workshop.round_trip(trained, codec)["a"]).all()


@pytest.mark.parametrize("codec", [*BOUNDS, *NOISE])
def test_errors_are_bounded(workshop: Workshop, codec: str) -> None:
    trained = workshop.train()
    decoded = workshop.round_trip(trained, codec)
    if codec in NOISE:
        name = "decoder.weight"
        error = np.square(decoded[name] - trained[name], dtype=np.float64).sum()
        delta = np.square(trained[name] - workshop.base[name], dtype=np.float64).sum()
        assert error / delta == pytest.approx(NOISE[codec], rel=0.1)
        return
    for name, array in trained.items():
        largest = np.abs(array - workshop.base[name]).max()
        slack = ADDITION if BOUNDS[codec] else 0
        assert np.abs(decoded[name] - array).max() <= BOUNDS[codec] * largest + slack


def test_an_update_without_loss(workshop: Workshop) -> None:
    trained = workshop.move_rows({"embedding.weight": [1, 5, 39], "decoder.bias": [0]})
    workshop.base["embedding.weight"][3, 2] = 0
    trained["embedding.weight"][3, 2] = 0
    save_tensors(workshop.path, workshop.base)
    trained["embedding.weight"][3, 2] = -0.0  # as a number it did not move
    found = workshop.round_trip(trained, "rows-f32")
    assert codecs.read_parts(workshop.folder / "update")[0]["embedding.weight.rows"].tolist() == [1, 3, 5, 39]
    for name, values in trained.items():
        assert found[name].tobytes() == values.tobytes()


@pytest.mark.parametrize("count", [34, 35])
def test_rows_and_the_whole_change_places_at_the_same_number(tmp_path: Path, count: int) -> None:
    """40 rows of 24 bytes are 960; a moved row takes 28: 34 rows 952, 35 rows 980."""
    workshop = Workshop(tmp_path, {"table": np.zeros((40, 6), "<f4")})
    workshop.round_trip(workshop.move_rows({"table": list(range(count))}), "rows-f32")
    assert ("table" in codecs.read_parts(tmp_path / "update")[0]) == (count >= 35)


@every_codec
def test_a_model_that_did_not_move_comes_back_to_the_bit_and_costs_next_to_nothing(
    workshop: Workshop, codec: str
) -> None:
    for name, array in workshop.round_trip(workshop.base, codec).items():
        assert array.tobytes() == workshop.base[name].tobytes()
    if codec.startswith(("delta-", "top-rows")):
        assert workshop.part_bytes(workshop.folder / "update") == 0


@pytest.mark.parametrize("codec", [name for name in CODECS if name.startswith(("rows-", "delta-", "top-rows"))])
def test_rows_that_did_not_move_stay_the_base_to_the_bit(workshop: Workshop, codec: str) -> None:
    decoded = workshop.round_trip(workshop.train(), codec)
    still = np.arange(300) % 4 > 0
    assert decoded["embedding.weight"][still].tobytes() == workshop.base["embedding.weight"][still].tobytes()
    assert (decoded["embedding.weight"] != workshop.base["embedding.weight"]).any()


@pytest.mark.parametrize("codec", ["delta-int8", "top-rows"])
def test_a_row_that_did_not_move_costs_a_bit(tmp_path: Path, codec: str) -> None:
    sizes = []
    for rows in (400, 8400):
        workshop = Workshop(tmp_path, {"embedding.weight": np.zeros((rows, 40), "<f4")})
        trained = {"embedding.weight": workshop.base["embedding.weight"].copy()}
        trained["embedding.weight"][:100] = 1.0
        sizes.append(workshop.part_bytes(workshop.encode(trained, codec)))
    assert sizes[1] - sizes[0] == 8000 // 8


@every_codec
def test_the_same_seed_writes_the_same_file_and_another_one_another(workshop: Workshop, codec: str) -> None:
    trained = workshop.train()
    first, again, other = (workshop.decode(workshop.encode(trained, workshop.info(codec, seed))) for seed in (3, 3, 4))
    same = [first[name].tobytes() == other[name].tobytes() for name in trained]
    assert all(first[name].tobytes() == again[name].tobytes() for name in trained)
    assert all(same) == (not codec.startswith(("delta-int8", "rot-", "top-rows")))


@every_codec
def test_tiles_rise_and_do_not_overlap(workshop: Workshop, codec: str) -> None:
    path = workshop.encode(workshop.train(), codec)
    with UpdateFile(path) as update, TensorFile(workshop.path) as base:
        for spec in base.specs.values():
            end = 0
            for start, values in update.tiles(spec, base):
                assert start >= end
                assert (values.dtype, values.ndim) == (np.float32, 1)
                end = start + len(values)
            assert end <= spec.elements


def test_tiles_are_of_the_rows_that_moved(workshop: Workshop) -> None:
    path = workshop.encode(workshop.move_rows({"embedding.weight": [3, 4, 9]}), "rows-f32")
    with UpdateFile(path) as update, TensorFile(workshop.path) as base:
        spans = [(start, len(values)) for start, values in update.tiles(base.specs["embedding.weight"], base)]
    assert spans == [(3 * 33, 2 * 33), (9 * 33, 33)]


@pytest.mark.parametrize(("rows", "bits"), [(20, 1), (35, 2), (71, 4)])
def test_budgets_are_told_by_the_parts(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, rows: int, bits: int
) -> None:
    """A sender may choose them; no mask is sent where all rows are."""
    chosen = functools.partial(codecs.encode_top_rows, most=rows, bits=bits)
    monkeypatch.setattr(codecs, "ENCODERS", {"top-rows": chosen})
    path, trained = workshop.folder / "budget", workshop.train()
    with TensorFile(workshop.path) as base:
        codecs.write_update(path, base, trained, workshop.info("top-rows"))
        expected = codecs.decode_file(path, base)
    assert ("decoder.weight.rows" in codecs.read_parts(path)[0]) == (rows < 71)
    for name, values in workshop.decode(path).items():
        np.testing.assert_array_equal(values, expected[name], name)


WEIGHTS: dict[str, Array] = {name: np.ones((4, 3), np.float32) for name in ("a", "b", "c")}


def test_frozen_tensors_are_named_in_the_metadata(tmp_path: Path) -> None:
    assert frozen_metadata((), WEIGHTS) == {}
    assert frozen_metadata(("c", "a"), WEIGHTS) == {"frozen": "a,c"}
    with TensorFile(Workshop(tmp_path, WEIGHTS, {"frozen": "a,c"}).path) as file:
        assert frozen_in(file) == {"a", "c"}
        assert [spec.name for spec in trained_specs(file)] == ["b"]
    for text, found in (("a,d", "'d', which"), ("", "'', which"), ("a,b,c", "all of them")):
        workshop = Workshop(tmp_path, WEIGHTS, {"frozen": text})
        with TensorFile(workshop.path) as file, pytest.raises(WeightsError, match=found):
            frozen_in(file)
        with pytest.raises(WeightsError, match=f"frozen: names of some of its tensors expected, found {found}"):
            workshop.encode(WEIGHTS, "rows-f32")


@every_codec
def test_an_update_has_no_part_of_frozen_tensors(tmp_path: Path, codec: str) -> None:
    moved = {name: array + np.float32(0.5) for name, array in WEIGHTS.items()}
    path = Workshop(tmp_path, WEIGHTS).encode(moved, codec)
    workshop = Workshop(tmp_path, WEIGHTS, {"frozen": "b"})
    said = pytest.raises(UpdateError, match="b.* is not part of the model")
    with UpdateFile(path) as update, TensorFile(workshop.path) as base, said:
        update.check(base, update.info.base_sha256)
    np.testing.assert_array_equal(workshop.round_trip(moved, codec)["b"], WEIGHTS["b"])
    assert {part.partition(".")[0] for part in codecs.read_parts(path)[0]} == {"a", "c"}
