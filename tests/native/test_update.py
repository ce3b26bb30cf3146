"""Updates: byte for byte those of the reference (tests/reference/codecs.py)."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import MAX_COUNT, UpdateFile, UpdateInfo, write_update
from tests.reference import codecs

INFO = UpdateInfo(base_sha256="0" * 64, round=3, tokens=4000, codec="rows-f32", seed=7)
# The second is larger than the piece of the base that is compared at a time, in rows that do not divide it.
SHAPES = {
    "embedding.weight": (40, 6),
    "decoder.weight": (3001, 97),
    "lstm.0.W": (1, 8, 6),
    "lstm.0.B": (1, 64),
    "decoder.bias": (40,),
    "one": (1,),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("update")
    random = np.random.default_rng(0)
    tensors: dict[str, Array] = {name: random.normal(size=shape).astype("<f4") for name, shape in SHAPES.items()}
    tensors["embedding.weight"][3] = 0.0
    save_tensors(folder / "base", tensors)
    return folder


def moved(folder: Path, rows: dict[str, list[int]]) -> dict[str, Array]:
    """The base's tensors with one element changed in each of these rows."""
    tensors = load_tensors(folder / "base")
    for name, numbers in rows.items():
        flat = tensors[name].reshape(-1, SHAPES[name][-1])
        for row in numbers:
            flat[row % len(flat), row % flat.shape[1]] += 1
    return tensors


def test_frozen_tensors_have_no_part(folder: Path, tmp_path: Path) -> None:
    base = load_tensors(folder / "base")
    save_tensors(tmp_path / "base", base, {"frozen": "embedding.weight,lstm.0.B"})
    for codec in CODECS:
        write_both(
            tmp_path,
            {name: array + np.float32(0.5) for name, array in base.items()},
            msgspec.structs.replace(INFO, codec=codec),
        )
        with UpdateFile(tmp_path / "native") as update, TensorFile(tmp_path / "base") as file:
            update.check(file, INFO.base_sha256)
            assert not [
                name for name in codecs.read_parts(update.path)[0] if name.startswith(("embedding.", "lstm.0.B"))
            ]
            np.testing.assert_array_equal(update.weights(file)["lstm.0.B"], base["lstm.0.B"])
    save_tensors(tmp_path / "base", base, {"frozen": "no.such"})
    with (
        TensorFile(tmp_path / "base") as file,
        pytest.raises(WeightsError, match="frozen: names of some of its tensors expected, found 'no.such'"),
    ):
        write_update(tmp_path / "native", file, base, INFO)


def write_both(folder: Path, trained: dict[str, Array], info: UpdateInfo) -> None:
    """The library's update and the reference's of the same weights: they must be equal, and what they stand for too."""
    with TensorFile(folder / "base") as base:
        written = write_update(folder / "native", base, trained, info)
        assert codecs.write_update(folder / "reference", base, trained, info) == written
        assert (folder / "native").read_bytes() == (folder / "reference").read_bytes()
        with UpdateFile(folder / "native") as update:
            update.check(base, info.base_sha256)
            found = update.weights(base)
        for name, values in codecs.decoded(folder / "native", base).items():
            np.testing.assert_array_equal(found[name], values, name)


ROWS = st.lists(st.integers(0, 3000), max_size=60)


@pytest.mark.parametrize("codec", CODECS)
@given(st.dictionaries(st.sampled_from(list(SHAPES)), ROWS), st.integers(0, MAX_COUNT))
@settings(max_examples=25, deadline=None)
def test_updates_are_the_references(folder: Path, codec: str, rows: dict[str, list[int]], number: int) -> None:
    info = msgspec.structs.replace(INFO, codec=codec, round=number // 3, tokens=max(1, number // 2), seed=number)
    write_both(folder, moved(folder, rows), info)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e-3, 1.0, 1e6, 1e36])
def test_deltas_of_every_size(folder: Path, codec: str, scale: float) -> None:
    random = np.random.default_rng(int(scale * 100) % 997)
    trained = load_tensors(folder / "base")
    for name, array in trained.items():
        array *= scale > 1e-9  # so that the smallest deltas are not rounded away
        spread = random.exponential(size=(*array.shape[:-1], 1)) * (random.random((*array.shape[:-1], 1)) < 0.7)
        trained[name] = (array + spread * random.normal(scale=scale, size=array.shape)).astype("<f4")
    write_both(folder, trained, msgspec.structs.replace(INFO, codec=codec, seed=int(scale) % 991))
    with UpdateFile(folder / "native") as update, TensorFile(folder / "base") as base:
        update.check(base, INFO.base_sha256)


def test_an_update_without_loss(folder: Path) -> None:
    trained = moved(folder, {"embedding.weight": [1, 5, 39], "decoder.bias": [0]})
    trained["embedding.weight"][3] = -0.0  # as a number it did not move
    write_both(folder, trained, INFO)
    with UpdateFile(folder / "native") as update, TensorFile(folder / "base") as base:
        update.check(base, INFO.base_sha256)
        assert codecs.read_parts(update.path)[0]["embedding.weight.rows"].tolist() == [1, 3, 5, 39]
        assert update.weights(base)["embedding.weight"].tobytes() == trained["embedding.weight"].tobytes()


@pytest.mark.parametrize("count", [33, 34, 35, 36])
def test_rows_and_the_whole_change_places_at_the_same_number(folder: Path, count: int) -> None:
    # 40 rows of 24 bytes are 960; a moved row takes 28: 34 rows 952, 35 rows 980.
    write_both(folder, moved(folder, {"embedding.weight": list(range(count))}), INFO)
    with TensorFile(folder / "native") as written:
        assert ("embedding.weight" in written.specs) == (count >= 35)


def broken(folder: Path) -> dict[str, dict[str, Array]]:
    base = load_tensors(folder / "base")
    cases: dict[str, dict[str, Array]] = {
        "missing": {name: values for name, values in base.items() if name != "decoder.bias"},
        "additional": {**base, "zz.more": np.zeros(2, "<f4"), "aa.more": np.zeros(2, "<f4")},
        "shape": {**base, "decoder.weight": np.zeros((97, 3001), "<f4")},
        "dtype": {**base, "lstm.0.B": base["lstm.0.B"].astype("<f2")},
    }
    for value in (np.nan, np.inf, -np.inf):
        changed = {name: values.copy() for name, values in base.items()}
        changed["decoder.weight"].reshape(-1)[2000:] = value
        cases[f"{value}"] = changed
    return cases


def refused(folder: Path, trained: dict[str, Array], info: UpdateInfo, kind: type[Exception], said: str) -> None:
    with TensorFile(folder / "base") as base, pytest.raises(kind, match=said):
        write_update(folder / "refused", base, trained, info)
    assert not (folder / "refused").exists()


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("missing", "decoder.bias"),
        ("additional", "aa.more"),
        ("shape", r"decoder.weight F32\[3001, 97\] expected"),
        ("dtype", "lstm.0.B"),
        ("nan", "decoder.weight: element 2000 is nan"),
        ("inf", "decoder.weight: element 2000 is inf"),
        ("-inf", "decoder.weight: element 2000 is -inf"),
    ],
)
def test_weights_that_fit_no_update_are_refused(folder: Path, case: str, said: str) -> None:
    refused(folder, broken(folder)[case], INFO, WeightsError, said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"round": 2**64 - 1}, "round 18446744073709551615: expected a whole number"),
        ({"tokens": MAX_COUNT + 1}, "tokens 1000000000000000000"),
        ({"seed": 2**63}, "seed 9223372036854775808"),
        ({"codec": "it's"}, "codec .* is unknown"),
    ],
)
def test_facts_that_no_reader_takes_are_refused(folder: Path, change: dict[str, Any], said: str) -> None:
    refused(folder, moved(folder, {}), msgspec.structs.replace(INFO, **change), UpdateError, said)


def test_the_largest_counts_are_read_back(folder: Path) -> None:
    info = msgspec.structs.replace(INFO, round=MAX_COUNT, tokens=MAX_COUNT, seed=MAX_COUNT)
    write_both(folder, moved(folder, {}), info)
    with UpdateFile(folder / "native") as update:
        assert update.info == info


def test_a_place_that_is_none_is_a_storage_error(folder: Path) -> None:
    with TensorFile(folder / "base") as base, pytest.raises(StorageError, match="/proc/none"):
        write_update(Path("/proc/none/update"), base, moved(folder, {}), INFO)
