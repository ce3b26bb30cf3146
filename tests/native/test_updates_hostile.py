"""What is refused of updates: weights that fit none, and files that someone forged, in one line that names the part."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import PhonogradError, StorageError, UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import NUMPY_DTYPES, Array, TensorFile, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import MAX_COUNT, write_update
from tests.native.codec_files import Workshop
from tests.reference.codecs import read_parts

Parts = dict[str, Array]
Change = Callable[[Parts], object]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("hostile"))


def put(name: str, place: int, value: float) -> Change:
    return lambda parts: parts[name].reshape(-1).__setitem__(place, value)


def replace(name: str, make: Callable[[Array], Array]) -> Change:
    return lambda parts: parts.update({name: make(parts[name])})


def dtype(name: str, code: str) -> Change:
    return replace(name, lambda values: values.astype(code))


def drop(name: str) -> Change:
    return lambda parts: parts.pop(name)


def first_row_only(rows: Array) -> Array:
    return np.eye(1, len(rows), dtype="u1")[0]


BIAS, WEIGHT = "decoder.bias", "decoder.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop(BIAS), BIAS),
        (lambda weights: weights.update({"zz.more": np.zeros(2, "<f4"), "aa.more": np.zeros(2, "<f4")}), "aa.more"),
        (replace(WEIGHT, np.transpose), r"decoder.weight F32\[71, 130\] expected"),
        (dtype("lstm.0.B", "<f2"), "lstm.0.B"),
        (put(WEIGHT, 2000, np.nan), "trained weights: tensor decoder.weight: element 2000 is nan"),
        (put(WEIGHT, 2000, np.inf), "decoder.weight: element 2000 is inf"),
        (put(WEIGHT, 2000, -np.inf), "decoder.weight: element 2000 is -inf"),
    ],
)
def test_weights_that_fit_no_update_are_refused(workshop: Workshop, change: Change, said: str) -> None:
    weights = {name: array.copy() for name, array in workshop.base.items()}
    change(weights)
    (workshop.folder / "update").unlink(missing_ok=True)
    with pytest.raises(WeightsError, match=said):
        workshop.encode(weights, "rows-f32")
    assert not (workshop.folder / "update").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"round": 2**64 - 1}, "round 18446744073709551615: expected a whole number"),
        ({"tokens": MAX_COUNT + 1}, "tokens 1000000000000000000"),
        ({"seed": 2**63}, "seed 9223372036854775808"),
        ({"codec": "it's"}, "codec .* is unknown"),
    ],
)
def test_facts_that_no_reader_takes_are_refused(workshop: Workshop, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UpdateError, match=said):
        workshop.encode(workshop.base, msgspec.structs.replace(workshop.info("rows-f32"), **change))


def test_a_place_that_is_none_is_a_storage_error(workshop: Workshop) -> None:
    with TensorFile(workshop.path) as base, pytest.raises(StorageError, match="/proc/none"):
        write_update(Path("/proc/none/update"), base, workshop.base, workshop.info("rows-f32"))


def decode_forged(workshop: Workshop, parts: Parts, metadata: dict[str, str]) -> None:
    path = workshop.folder / "forged"
    save_tensors(path, parts, metadata, checksum=True)
    workshop.decode(path)


WHOLE = "a whole number of at most 18 digits expected"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not an update"),
        ({"version": "2"}, "update version 3 expected, found '2'"),
        ({"base_sha256": "ab" * 32}, "made from model abababababab…, expected"),
        ({"base_sha256": None}, "metadata base_sha256 expected, not found"),
        ({"tokens": "0"}, "0 tokens trained, expected at least 1"),
        ({"tokens": "-4"}, f"metadata tokens: {WHOLE}, found '-4'"),
        ({"tokens": "9" * 30}, f"metadata tokens: {WHOLE}"),
        ({"tokens": "5\n"}, rf"metadata tokens: {WHOLE}, found '5\\n'"),
        ({"tokens": "\u0665"}, f"metadata tokens: {WHOLE}"),
        ({"round": "one"}, f"metadata round: {WHOLE}, found 'one'"),
        ({"seed": ""}, f"metadata seed: {WHOLE}, found ''"),
        ({"seed": "1" * 19}, f"metadata seed: {WHOLE}"),
        ({"steps": "2"}, "metadata steps: 1 expected, or nothing"),
        ({"codec": "os:abort"}, "codec 'os:abort' is unknown; this version has full-f32, rows-f32, .*top-rows"),
        ({"codec": None}, "metadata codec expected, not found"),
    ],
)
def test_forged_metadata_is_refused(workshop: Workshop, change: dict[str, str | None], message: str) -> None:
    parts, metadata = read_parts(workshop.encode(workshop.base, "full-f32"))
    forged = {name: value for name, value in {**metadata, **change}.items() if value is not None}
    with pytest.raises(UpdateError, match=message):
        decode_forged(workshop, parts, forged)


SCALES, LEVELS, ROWS = "embedding.weight.scales", "embedding.weight.levels", "embedding.weight.rows"
VALUES = "embedding.weight.values"


@pytest.mark.parametrize(
    ("codec", "change", "message"),
    [
        ("full-f32", put(BIAS, 5, np.nan), "forged: tensor decoder.bias: element 5 is nan"),
        ("rows-f32", put(ROWS, 74, 300), "rising row numbers below 300"),
        ("rows-f32", put(ROWS, 74, 2**32 - 1), "rising row numbers below 300"),
        ("rows-f32", put(ROWS, 1, 0), "rising row numbers below 300"),
        ("rows-f32", put(ROWS, 0, 5), "rising row numbers below 300"),
        ("rows-f32", replace(VALUES, lambda a: a[1:]), rf"{VALUES} F32\[75, 33\] expected, found {VALUES} F32\[74, 33"),
        ("rows-f32", dtype(VALUES, "<f8"), rf"{VALUES} F32\[75, 33\] expected, found {VALUES} F64"),
        ("rows-f32", lambda parts: parts.update(more=parts[VALUES]), "more is not part of the model"),
        ("rot-q2", put(SCALES, 1, np.nan), f"{SCALES}: finite scales of at least 0 expected, found nan"),
        ("rot-q1", put(SCALES, 0, np.inf), f"{SCALES}: finite scales of at least 0 expected, found inf"),
        ("top-rows", put(SCALES, 0, -1.0), f"{SCALES}: finite scales of at least 0 expected, found -1.0"),
        ("delta-int8", put(SCALES, 2, np.nan), f"{SCALES}: finite scales of at least 0 expected, found nan"),
        ("rot-q4", put(SCALES, 0, 3e38), "tensor embedding.weight: element . is -?inf"),
        ("delta-int8", put(SCALES, 0, 3e38), "tensor embedding.weight: element . is -?inf"),
        ("delta-f16", put(VALUES, 0, np.inf), "tensor embedding.weight: element 0 is inf"),
        ("delta-bf16", put(VALUES, 0, 0x7FC0), "tensor embedding.weight: element 0 is nan"),
        ("delta-f16", put(ROWS, 37, 0x1F), f"{ROWS}: expected bits of 1 to 300 rows"),
        ("top-rows", replace(ROWS, np.zeros_like), f"{ROWS}: expected bits of 1 to 300 rows"),
        ("delta-int8", put(ROWS, 0, 0x13), rf"{SCALES} F32\[76\] expected, found {SCALES} F32\[75\]"),
        ("top-rows", replace(ROWS, first_row_only), rf"{LEVELS} U8.* or .* expected, found {LEVELS}"),
        ("delta-f16", replace(ROWS, lambda a: a[:-1]), rf"{ROWS} U8\[38\] expected, found {ROWS} U8\[37\]"),
        ("delta-f16", dtype(ROWS, "<u4"), rf"{ROWS} U8\[38\] expected, found {ROWS} U32"),
        ("rot-q2", replace(LEVELS, lambda a: a[:-1]), rf"{LEVELS} U8\[2560\] expected, found {LEVELS} U8\[2559\]"),
        ("rot-q2", dtype(SCALES, "<f8"), rf"{SCALES} F32\[3\] expected, found {SCALES} F64"),
        ("top-rows", dtype(LEVELS, "i1"), rf"{LEVELS} U8.* or .* expected, found {LEVELS} I8"),
        ("rot-q2", drop(SCALES), rf"tensor {SCALES} F32\[3\] expected, not found"),
        ("top-rows", drop(SCALES), rf"tensor {SCALES} F32\[1\] expected, not found"),
        ("top-rows", drop(LEVELS), "embedding.weight.* is not part of the model"),
        ("top-rows", replace(SCALES, lambda a: np.ones(2, "<f4")), rf"{SCALES} F32\[1\] expected, found"),
        ("delta-int8", drop(VALUES), "tensor embedding.weight.rows is not part of the model"),
        ("delta-f16", drop(ROWS), rf"{VALUES} F16\[300, 33\] expected, found {VALUES} F16\[75, 33\]"),
        ("top-rows", drop(ROWS), rf"{LEVELS} U8.* or .* expected, found {LEVELS}"),
    ],
)
def test_a_forged_part_is_named(workshop: Workshop, codec: str, change: Change, message: str) -> None:
    parts, metadata = read_parts(workshop.encode(workshop.train(), codec))
    change(parts)
    with pytest.raises((UpdateError, WeightsError), match=message):
        decode_forged(workshop, parts, metadata)


@pytest.mark.parametrize("codec", ["full-f32", "rows-f32", "rot-q1"])
def test_a_flipped_bit_anywhere_is_found(workshop: Workshop, codec: str) -> None:
    path = workshop.encode(workshop.train(), codec)
    data = path.read_bytes()
    (header,) = struct.unpack("<Q", data[:8])
    for place in (8 + header, (8 + header + len(data)) // 2, len(data) - 5, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(UpdateError, match=r"damaged: checksum \w{8} expected, its bytes have \w{8}; send it again"):
            workshop.decode(path)
    path.write_bytes(data)
    save_tensors(path, *read_parts(path))
    with pytest.raises(UpdateError, match=r"damaged: its last tensor is not checksum U32\[1\]"):
        workshop.decode(path)


DTYPES = sorted(set(NUMPY_DTYPES) - {"BF16"})


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_parts_are_the_answer_is_weights_or_one_line(
    workshop: Workshop, codec: str, data: st.DataObject
) -> None:
    parts, metadata = read_parts(workshop.encode(workshop.train(), codec))
    for name in data.draw(st.sets(st.sampled_from(sorted(parts)), min_size=1, max_size=3)):
        how = data.draw(st.sampled_from(["bytes", "dtype", "shape", "drop", "cut"]))
        array = parts[name]
        raw = bytearray(array.tobytes())
        if how == "bytes":
            for place in data.draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=8)):
                raw[place : place + 1] = bytes([data.draw(st.integers(0, 255))])
            parts[name] = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
        elif how == "dtype":
            kind = np.dtype(NUMPY_DTYPES[data.draw(st.sampled_from(DTYPES))])
            parts[name] = np.frombuffer(bytes(raw[: len(raw) // kind.itemsize * kind.itemsize]), kind)
        elif how == "shape":
            parts[name] = array.reshape(data.draw(st.sampled_from([(-1,), (1, -1), (-1, 1), (1, 1, -1)])))
        elif how == "cut":
            parts[name] = array.reshape(-1)[: data.draw(st.integers(0, array.size))]
        else:
            del parts[name]
    try:
        decode_forged(workshop, parts, metadata)
    except PhonogradError as error:
        assert "\n" not in str(error)
