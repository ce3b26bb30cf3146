"""Frozen tensors: what a weights file says of them, and what updates of such a model hold."""

from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata, trained_specs
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from tests.reference.codecs import read_parts

WEIGHTS: dict[str, Array] = {name: np.ones((4, 3), np.float32) for name in ("a", "b", "c")}


def test_metadata_both_ways(tmp_path: Path) -> None:
    assert frozen_metadata((), WEIGHTS) == {}
    assert frozen_metadata(("c", "a"), WEIGHTS) == {"frozen": "a,c"}
    save_tensors(tmp_path / "w", WEIGHTS, {"frozen": "a,c"})
    with TensorFile(tmp_path / "w") as file:
        assert frozen_in(file) == {"a", "c"}
        assert [spec.name for spec in trained_specs(file)] == ["b"]


@pytest.mark.parametrize(("text", "found"), [("a,d", "'d', which"), ("", "'', which"), ("a,b,c", "all of them")])
def test_names_that_can_not_be(tmp_path: Path, text: str, found: str) -> None:
    save_tensors(tmp_path / "w", WEIGHTS, {"frozen": text})
    with TensorFile(tmp_path / "w") as file, pytest.raises(WeightsError, match=found):
        frozen_in(file)


@pytest.mark.parametrize("codec", CODECS)
def test_an_update_has_no_part_of_them(tmp_path: Path, codec: str) -> None:
    save_tensors(tmp_path / "w", WEIGHTS, {"frozen": "b"})
    trained = {name: array + np.float32(0.5) for name, array in WEIGHTS.items()}
    info = UpdateInfo("0" * 64, 1, 10, codec, 3)
    with TensorFile(tmp_path / "w") as base:
        write_update(tmp_path / "u", base, trained, info)
        with UpdateFile(tmp_path / "u") as update:
            update.check(base, info.base_sha256)
            assert {part.partition(".")[0] for part in read_parts(tmp_path / "u")[0]} == {"a", "c"}
            np.testing.assert_array_equal(update.weights(base)["b"], WEIGHTS["b"])
    save_tensors(tmp_path / "free", WEIGHTS)
    with TensorFile(tmp_path / "free") as free, TensorFile(tmp_path / "w") as base:
        write_update(tmp_path / "u", free, trained, info)
        with UpdateFile(tmp_path / "u") as update, pytest.raises(UpdateError, match="b.* is not part of the model"):
            update.check(base, info.base_sha256)
