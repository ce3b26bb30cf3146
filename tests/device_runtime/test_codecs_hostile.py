"""Parts that someone forged: refused with one line that names the part, whatever they are, and nothing large made."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import PhonogradError, UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import NUMPY_DTYPES, Array, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from tests.device_runtime.codec_files import Workshop, base_weights, trained_weights
from tests.reference.codecs import read_parts

Parts = dict[str, Array]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("hostile"), base_weights())


def parts_of(workshop: Workshop, codec: str) -> tuple[Parts, dict[str, str]]:
    return read_parts(workshop.encode(trained_weights(workshop.base), codec))


def decode_forged(workshop: Workshop, parts: Parts, metadata: dict[str, str]) -> None:
    path = workshop.folder / "forged"
    save_tensors(path, parts, metadata, checksum=True)
    workshop.decode(path)


def put(name: str, place: int, value: float) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        parts[name].reshape(-1)[place] = value

    return change


def replace(name: str, make: Callable[[Array], Array]) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        parts[name] = make(parts[name])

    return change


def drop(name: str) -> Callable[[Parts], None]:
    def change(parts: Parts) -> None:
        del parts[name]

    return change


def first_row_only(rows: Array) -> Array:
    return np.eye(1, len(rows), dtype="u1")[0]


SCALES, LEVELS, ROWS = "embedding.weight.scales", "embedding.weight.levels", "embedding.weight.rows"
VALUES = "embedding.weight.values"


@pytest.mark.parametrize(
    ("codec", "change", "message"),
    [
        ("rot-q2", put(SCALES, 1, np.nan), f"{SCALES}: finite scales of at least 0 expected, found nan"),
        ("rot-q1", put(SCALES, 0, np.inf), f"{SCALES}: finite scales of at least 0 expected, found inf"),
        ("top-rows", put(SCALES, 0, -1.0), f"{SCALES}: finite scales of at least 0 expected, found -1.0"),
        ("delta-int8", put(SCALES, 2, np.nan), f"{SCALES}: finite scales of at least 0 expected, found nan"),
        ("rot-q4", put(SCALES, 0, 3e38), "tensor embedding.weight: element . is -?inf"),
        ("delta-int8", put(SCALES, 0, 3e38), "tensor embedding.weight: element . is -?inf"),
        ("delta-f16", put(VALUES, 0, np.inf), "tensor embedding.weight: element 0 is inf"),
        ("delta-bf16", put(VALUES, 0, 0x7FC0), "tensor embedding.weight: element 0 is nan"),
        ("delta-f16", put(ROWS, 37, 0xFF), f"{ROWS}: expected bits of 1 to 300 rows"),
        ("top-rows", replace(ROWS, np.zeros_like), f"{ROWS}: expected bits of 1 to 300 rows"),
        ("delta-int8", put(ROWS, 0, 0x13), rf"{SCALES} F32\[76\] expected, found {SCALES} F32\[75\]"),
        ("top-rows", replace(ROWS, first_row_only), rf"{LEVELS} U8.* or .* expected, found {LEVELS}"),
        ("delta-f16", replace(ROWS, lambda a: a[:-1]), rf"{ROWS} U8\[38\] expected, found {ROWS} U8\[37\]"),
        ("delta-f16", replace(ROWS, lambda a: a.astype("<u4")), rf"{ROWS} U8\[38\] expected, found {ROWS} U32"),
        ("rot-q2", replace(LEVELS, lambda a: a[:-1]), rf"{LEVELS} U8\[2560\] expected, found {LEVELS} U8\[2559\]"),
        ("rot-q2", replace(SCALES, lambda a: a.astype("<f8")), rf"{SCALES} F32\[3\] expected, found {SCALES} F64"),
        ("rot-q2", drop(SCALES), rf"tensor {SCALES} F32\[3\] expected, not found"),
        ("top-rows", drop(SCALES), rf"tensor {SCALES} F32\[1\] expected, not found"),
        ("delta-int8", drop(VALUES), "tensor embedding.weight.rows is not part of the model"),
        ("delta-f16", drop(ROWS), rf"{VALUES} F16\[300, 33\] expected, found {VALUES} F16\[75, 33\]"),
    ],
)
def test_a_forged_part_is_named(workshop: Workshop, codec: str, change: Callable[[Parts], None], message: str) -> None:
    parts, metadata = parts_of(workshop, codec)
    change(parts)
    with pytest.raises((UpdateError, WeightsError), match=message):
        decode_forged(workshop, parts, metadata)


DTYPES = sorted(set(NUMPY_DTYPES) - {"BF16"})


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_parts_are_the_answer_is_weights_or_one_line(
    workshop: Workshop, codec: str, data: st.DataObject
) -> None:
    parts, metadata = parts_of(workshop, codec)
    for name in data.draw(st.sets(st.sampled_from(sorted(parts)), min_size=1, max_size=3)):
        how = data.draw(st.sampled_from(["bytes", "dtype", "shape", "drop", "cut"]))
        array = parts[name]
        if how == "bytes":
            raw = bytearray(array.tobytes())
            for place in data.draw(st.lists(st.integers(0, max(0, len(raw) - 1)), max_size=8)):
                raw[place : place + 1] = bytes([data.draw(st.integers(0, 255))])
            parts[name] = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
        elif how == "dtype":
            kind = np.dtype(NUMPY_DTYPES[data.draw(st.sampled_from(DTYPES))])
            raw = array.tobytes()
            parts[name] = np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], kind)
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
