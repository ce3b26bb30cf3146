import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from tests.reference.codecs import read_parts

ROWS, WIDTH = 40, 6
INFO = UpdateInfo(base_sha256="", round=3, tokens=4000, codec="rows-f32", seed=7)


def make_base(folder: Path) -> tuple[Path, str, dict[str, Array]]:
    random = np.random.default_rng(0)
    tensors: dict[str, Array] = {
        "embedding.weight": random.normal(size=(ROWS, WIDTH)).astype(np.float32),
        "lstm.0.W": random.normal(size=(1, 8, WIDTH)).astype(np.float32),
        "decoder.bias": random.normal(size=ROWS).astype(np.float32),
    }
    path = folder / "base"
    return path, save_tensors(path, tensors).sha256, tensors


def encode(folder: Path, trained: dict[str, Array], codec: str, base: Path, sha256: str) -> Path:
    path = folder / f"{codec}.update"
    info = UpdateInfo(sha256, INFO.round, INFO.tokens, codec, INFO.seed)
    with TensorFile(base) as base_file:
        write_update(path, base_file, trained, info)
    return path


def decode(path: Path, base: Path) -> dict[str, Array]:
    with UpdateFile(path) as update, TensorFile(base) as base_file:
        update.check(base_file, sha256_of_file(base))
        return update.weights(base_file)


@given(moved=st.sets(st.integers(0, ROWS - 1)), value=st.floats(-9, 9, width=32))
def test_rows_f32_reproduces_full_f32_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, moved: set[int], value: float
) -> None:
    folder = tmp_path_factory.mktemp("codec")
    base, sha256, tensors = make_base(folder)
    trained = {name: array.copy() for name, array in tensors.items()}
    trained["embedding.weight"][sorted(moved)] = value
    trained["decoder.bias"] += np.float32(1e-3)
    results = [decode(encode(folder, trained, codec, base, sha256), base) for codec in ("full-f32", "rows-f32")]
    for name, array in trained.items():
        for result in results:
            assert result[name].tobytes() == array.tobytes()


def test_signed_zero_travels(tmp_path: Path) -> None:
    base = tmp_path / "base"
    sha256 = save_tensors(base, {"a": np.zeros((9, 2), np.float32)}).sha256
    trained = np.zeros((9, 2), np.float32)
    trained[4, 1] = -0.0
    path = encode(tmp_path, {"a": trained}, "rows-f32", base, sha256)
    assert np.signbit(decode(path, base)["a"][4, 1])


def test_untouched_rows_stay_home_and_sizes_are_what_the_codecs_say(tmp_path: Path) -> None:
    base, sha256, tensors = make_base(tmp_path)
    trained = {name: array.copy() for name, array in tensors.items()}
    trained["embedding.weight"][[3, 4, 9]] += 1
    sizes = {codec: encode(tmp_path, trained, codec, base, sha256).stat().st_size for codec in CODECS}
    with TensorFile(base) as base_file, UpdateFile(tmp_path / "rows-f32.update") as update:
        parts, _ = read_parts(update.path)
        assert parts["embedding.weight.rows"].tolist() == [3, 4, 9]
        assert "lstm.0.W.rows" in parts
        spans = [(start, len(values)) for start, values in update.tiles(base_file.specs["embedding.weight"], base_file)]
    assert spans == [(3 * WIDTH, 2 * WIDTH), (9 * WIDTH, WIDTH)]
    full = 4 * sum(array.size for array in tensors.values())
    assert full < sizes["full-f32"] < full + 1000
    assert sizes["rows-f32"] < sizes["full-f32"]


def test_metadata_survives(tmp_path: Path) -> None:
    base, sha256, tensors = make_base(tmp_path)
    with UpdateFile(encode(tmp_path, tensors, "rows-f32", base, sha256)) as update:
        assert update.info == UpdateInfo(sha256, 3, 4000, "rows-f32", 7)


def test_an_update_for_another_model_is_refused(tmp_path: Path) -> None:
    base, _, tensors = make_base(tmp_path)
    path = encode(tmp_path, tensors, "full-f32", base, "ab" * 32)
    with pytest.raises(UpdateError, match=r"made from model abababababab…, expected"):
        decode(path, base)


def test_weights_that_are_not_finite_are_neither_written_nor_accepted(tmp_path: Path) -> None:
    base, sha256, tensors = make_base(tmp_path)
    trained = {name: array.copy() for name, array in tensors.items()}
    trained["decoder.bias"][5] = np.nan
    with pytest.raises(WeightsError, match="trained weights: tensor decoder.bias: element 5 is nan"):
        encode(tmp_path, trained, "rows-f32", base, sha256)
    path = tmp_path / "forged"
    metadata = {"format": "phonograd-update", "version": "3", "base_sha256": sha256, "round": "1"}
    save_tensors(path, trained, metadata | {"tokens": "5", "codec": "full-f32", "seed": "0"}, checksum=True)
    with pytest.raises(UpdateError, match="forged: tensor decoder.bias: element 5 is nan"):
        decode(path, base)


GOOD = {"format": "phonograd-update", "version": "3", "base_sha256": "x", "round": "1", "tokens": "5", "seed": "0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not an update"),
        ({"version": "2"}, "update version 3 expected, found '2'"),
        ({"tokens": "0"}, "0 tokens trained"),
        ({"tokens": "-4"}, "metadata tokens: a whole number of at most 18 digits expected, found '-4'"),
        ({"tokens": "9" * 30}, "metadata tokens: a whole number of at most 18 digits expected"),
        ({"tokens": "5\n"}, "metadata tokens: a whole number of at most 18 digits expected"),
        ({"tokens": "\u0665"}, "metadata tokens: a whole number of at most 18 digits expected"),
        ({"round": "one"}, "metadata round: a whole number .* expected, found 'one'"),
        (
            {"codec": "gzip"},
            "codec 'gzip' is unknown; this version has full-f32, rows-f32, .*top-rows",
        ),
    ],
)
def test_forged_metadata_is_refused(tmp_path: Path, change: dict[str, str], message: str) -> None:
    path = tmp_path / "forged"
    save_tensors(path, {"a": np.zeros(1, np.float32)}, GOOD | {"codec": "full-f32"} | change, checksum=True)
    with pytest.raises(UpdateError, match=message):
        UpdateFile(path)


def forge_rows(folder: Path, rows: Array, values: Array) -> tuple[Path, Path]:
    base = folder / "base"
    sha256 = save_tensors(base, {"a": np.zeros((9, 2), np.float32)}).sha256
    path = folder / "forged"
    metadata = GOOD | {"codec": "rows-f32", "base_sha256": sha256}
    save_tensors(path, {"a.rows": rows, "a.values": values}, metadata, checksum=True)
    return path, base


@pytest.mark.parametrize("rows", [[0, 9], [3, 2], [4, 4], [0, 2**32 - 1]])
def test_row_numbers_must_rise_and_exist(tmp_path: Path, rows: list[int]) -> None:
    path, base = forge_rows(tmp_path, np.array(rows, np.uint32), np.ones((2, 2), np.float32))
    with pytest.raises(UpdateError, match="rising row numbers below 9"):
        decode(path, base)


def test_rows_and_values_must_agree(tmp_path: Path) -> None:
    path, base = forge_rows(tmp_path, np.array([1, 2], np.uint32), np.ones((3, 2), np.float32))
    with pytest.raises(UpdateError, match=r"a.values F32\[2, 2\] expected, found a.values F32\[3, 2\]"):
        decode(path, base)


def test_weights_load_back_from_a_decoded_update(tmp_path: Path) -> None:
    base, sha256, tensors = make_base(tmp_path)
    path = encode(tmp_path, tensors, "rows-f32", base, sha256)
    save_tensors(tmp_path / "out", decode(path, base))
    assert (tmp_path / "out").read_bytes() == base.read_bytes()
    assert list(load_tensors(tmp_path / "out")) == list(tensors)


@pytest.mark.parametrize("codec", ["full-f32", "rows-f32", "rot-q1"])
def test_a_flipped_bit_anywhere_is_found(tmp_path: Path, codec: str) -> None:
    base, sha256, tensors = make_base(tmp_path)
    path = encode(tmp_path, {name: array + 1 for name, array in tensors.items()}, codec, base, sha256)
    data = path.read_bytes()
    (header,) = struct.unpack("<Q", data[:8])
    for place in (8 + header, (8 + header + len(data)) // 2, len(data) - 5, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(UpdateError, match=r"damaged: checksum \w{8} expected, its bytes have \w{8}; send it again"):
            UpdateFile(path)
    save_tensors(path, tensors, GOOD | {"codec": "full-f32"})
    with pytest.raises(UpdateError, match=r"damaged: its last tensor is not checksum U32\[1\]"):
        UpdateFile(path)
