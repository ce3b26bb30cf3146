import os
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import (
    HEADER_CAP_BYTES,
    TensorFile,
    TensorSpec,
    check_finite,
    check_specs,
    load_tensors,
    save_tensors,
    write_tensor_file,
)
from tests.device_runtime.tensor_files import HOSTILE, TENSORS, write_raw


def test_reads_what_the_safetensors_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file(TENSORS, path, {"who": "library"})
    with TensorFile(path) as file:
        assert file.metadata == {"who": "library"}
        for name, array in TENSORS.items():
            found = file.read(name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_the_safetensors_library_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "ours.safetensors"
    written = save_tensors(path, TENSORS, {"who": "us"})
    assert written.nbytes == path.stat().st_size
    theirs = safetensors.numpy.load_file(path)
    assert set(theirs) == set(TENSORS)
    for name, array in TENSORS.items():
        np.testing.assert_array_equal(theirs[name], array)


def test_equal_tensors_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (save_tensors(tmp_path / name, TENSORS) for name in ("a", "b"))
    assert first == second
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_reads_a_range_without_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "t"
    save_tensors(path, TENSORS)
    with TensorFile(path) as file:
        np.testing.assert_array_equal(file.read_range("embedding.weight", 5, 9), np.arange(5, 9, dtype=np.float32))
        with pytest.raises(IndexError):
            file.read_range("embedding.weight", 5, 13)


@pytest.mark.parametrize("name", HOSTILE)
def test_refuses_a_hostile_header(tmp_path: Path, name: str) -> None:
    header, data, message = HOSTILE[name]
    path = tmp_path / "hostile"
    write_raw(path, header, data)
    with pytest.raises(WeightsError, match=message) as caught:
        TensorFile(path)
    assert str(path) in str(caught.value)


def test_refuses_a_header_past_the_cap_before_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_bytes(struct.pack("<Q", HEADER_CAP_BYTES + 1))
    with pytest.raises(WeightsError, match=f"at most {HEADER_CAP_BYTES}"):
        TensorFile(path)


@given(cut=st.integers(0, 400), data=st.data())
def test_every_truncation_is_refused(tmp_path_factory: pytest.TempPathFactory, cut: int, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    save_tensors(folder / "whole", TENSORS)
    whole = (folder / "whole").read_bytes()
    (folder / "cut").write_bytes(whole[: min(cut, len(whole) - 1)])
    with pytest.raises(WeightsError):
        TensorFile(folder / "cut")


@given(garbage=st.binary(max_size=300))
def test_garbage_is_refused_or_read_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    path = tmp_path_factory.mktemp("garbage") / "g"
    path.write_bytes(struct.pack("<Q", len(garbage) // 2) + garbage)
    try:
        load_tensors(path)
    except WeightsError:
        return


def test_refused_files_leave_no_descriptor_open(tmp_path: Path) -> None:
    write_raw(tmp_path / "bad", [1])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(WeightsError):
            TensorFile(tmp_path / "bad")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    save_tensors(path, TENSORS)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        save_tensors(path, {"a": np.zeros(5, np.float32)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_writing_fewer_bytes_than_announced_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "short"
    with pytest.raises(WeightsError, match="8 bytes written, 12 announced"):
        write_tensor_file(path, [TensorSpec("a", "F32", (3,))], [np.zeros(2, np.float32)], {})
    assert list(tmp_path.iterdir()) == []


def test_check_specs_names_tensor_expected_and_found() -> None:
    expected = [TensorSpec("a", "F32", (2, 3))]
    with pytest.raises(WeightsError, match=r"w: tensor a F32\[2, 3\] expected, found a F16\[2, 3\]"):
        check_specs("w", {"a": TensorSpec("a", "F16", (2, 3))}, expected)
    with pytest.raises(WeightsError, match=r"w: tensor a F32\[2, 3\] expected, not found"):
        check_specs("w", {}, expected)
    with pytest.raises(WeightsError, match="tensor b is not part of the model"):
        check_specs("w", {"a": expected[0], "b": expected[0]}, expected)


def test_check_finite_names_the_element() -> None:
    with pytest.raises(WeightsError, match="w: tensor a: element 4 is nan"):
        check_finite("w", "a", np.array([[0, 1, 2], [3, np.nan, np.inf]], np.float32))


def test_what_is_open_is_hashed_and_watched_whatever_takes_its_path(tmp_path: Path) -> None:
    path = tmp_path / "model"
    written = save_tensors(path, {"a": np.arange(4, dtype=np.float32)})
    with TensorFile(path) as file:
        save_tensors(path, {"a": np.zeros(4, np.float32)})  # a new file takes the name
        assert file.sha256() == written.sha256
        file.require_unchanged()
        with pytest.raises(WeightsError, match="model: was replaced while it was opened; start again"):
            file.require_at_path()
        path.unlink()
        with pytest.raises(WeightsError, match="was replaced"):
            file.require_at_path()


@pytest.mark.parametrize("size", [4, 5])
def test_an_open_file_that_is_written_to_is_found_out(tmp_path: Path, size: int) -> None:
    path = tmp_path / "model"
    save_tensors(path, {"a": np.arange(4, dtype=np.float32)})
    os.utime(path, ns=(0, 0))
    with TensorFile(path) as file:
        file.require_at_path()
        path.write_bytes(bytes(path.stat().st_size if size == 4 else size))
        with pytest.raises(WeightsError, match="model: was changed while it was in use; fetch it again and restart"):
            file.require_unchanged()
