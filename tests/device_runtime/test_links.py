"""Links are applied to the bit, or refused with the local model as it was."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.links import LinkCodec, pull_links
from tests.reference.codecs import link_metadata, rotated_parts, write_result

BASE = {"table": np.arange(800, dtype=np.float32).reshape(100, 8), "bias": np.full(10, -0.0, np.float32)}
ROWS = {
    "table.rows": np.array([3, 4, 90], "<u4"),
    "table.values": np.full((3, 8), 0.5, np.float32),
    "bias.rows": np.empty(0, "<u4"),
    "bias.values": np.empty((0, 10), np.float32),
}


@dataclass
class Place:
    """A folder with a base model, links from it, and the model on the phone, `out`."""

    folder: Path
    links: int = 0

    @property
    def base(self) -> Path:
        return self.folder / "base"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def link(
        self,
        parts: Mapping[str, Array],
        base: Path | None = None,
        kind: LinkCodec = "rows-f32",
        **changes: str | None,
    ) -> tuple[Path, str]:
        """A link from `base` whose metadata are changed, and the hash of the model that the right one leads to."""
        base, self.links = base or self.base, self.links + 1
        path, model = self.folder / f"link-{self.links}", self.folder / f"model-{self.links}"
        result = {"round": "1"}
        save_tensors(path, parts, link_metadata(sha256_of_file(base), 1, kind, "", result), checksum=True)
        sha256 = write_result(base, path, model, result).sha256
        metadata: dict[str, str | None] = {**link_metadata(sha256_of_file(base), 1, kind, sha256, result), **changes}
        save_tensors(path, parts, {key: value for key, value in metadata.items() if value is not None}, checksum=True)
        return path, sha256

    def apply(self, links: Path, sha256: str) -> None:
        pull_links(links, self.base, self.out, sha256)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    save_tensors(made.base, BASE)
    made.out.write_bytes(b"as it was")
    return made


def test_rows_are_written_over_the_base(place: Place) -> None:
    place.apply(*place.link(ROWS))
    expected = {name: values.copy() for name, values in BASE.items()}
    expected["table"][[3, 4, 90]] = 0.5
    found = load_tensors(place.out)
    assert {name: values.tobytes() for name, values in found.items()} == {
        name: values.tobytes() for name, values in expected.items()
    }


def test_a_sum_equal_to_the_weight_keeps_its_bits(place: Place) -> None:
    """A block of scale 0 adds 0.0 or -0.0 to each weight, which are all -0.0."""
    save_tensors(place.base, {"bias": np.full(8192, -0.0, np.float32)})
    values = np.zeros(8192, np.float32)
    values[8000] = 1
    place.apply(*place.link(rotated_parts("bias", values, 4, 1, nearest=True), kind="top-rows"))
    found = load_tensors(place.out)["bias"]
    assert np.signbit(found[:4096]).all() and found[4096:].any()


def test_a_second_link_begins_at_what_the_first_led_to(place: Place) -> None:
    save_tensors(place.base, {"bias": np.zeros(64, np.float32)})
    parts = rotated_parts("bias", np.full(64, 2.0, np.float32), 4, 1, nearest=True)
    first, _ = place.link(parts, kind="top-rows")
    second, sha256 = place.link(parts, place.folder / "model-1", kind="top-rows")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    place.apply(first, sha256)
    assert place.out.read_bytes() == (place.folder / "model-2").read_bytes()


def other_values(place: Place) -> tuple[Path, str]:
    path, sha256 = place.link(ROWS)
    with TensorFile(path) as file:
        metadata = file.metadata
    save_tensors(path, {**ROWS, "table.values": np.full((3, 8), 0.25, np.float32)}, metadata, checksum=True)
    return path, sha256


def cut(place: Place) -> tuple[Path, str]:
    path, sha256 = place.link(ROWS)
    path.write_bytes(path.read_bytes()[:-1])
    return path, sha256


def flipped(place: Place) -> tuple[Path, str]:
    path, sha256 = place.link(ROWS)
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    return path, sha256


def followed_by_noise(place: Place) -> tuple[Path, str]:
    path, sha256 = place.link(ROWS)
    path.write_bytes(path.read_bytes() + b"\xff" * 100)
    return path, sha256


def second_from_another_model(place: Place) -> tuple[Path, str]:
    path, _ = place.link(ROWS)
    again, sha256 = place.link(ROWS)
    path.write_bytes(path.read_bytes() + again.read_bytes())
    return path, sha256


def raw(changes: Mapping[str, Array]) -> Callable[[Place], tuple[Path, str]]:
    """A link with other parts, whose result is said to be that of the right ones."""

    def make(place: Place) -> tuple[Path, str]:
        path, sha256 = place.link(ROWS)
        with TensorFile(path) as file:
            metadata = file.metadata
        save_tensors(path, {**ROWS, **changes}, metadata, checksum=True)
        return path, sha256

    return make


HOSTILE: Mapping[str, tuple[Callable[[Place], tuple[Path, str]], str]] = {
    "other values": (other_values, "links to model .* expected, found .*; fetch the whole model"),
    "cut": (cut, "truncated"),
    "a flipped bit": (flipped, "damaged: checksum"),
    "nothing": (lambda place: ((place.folder / "empty").touch() or place.folder / "empty", "0" * 64), "0 bytes"),
    "followed by noise": (followed_by_noise, "header of"),
    "from another model": (lambda place: place.link(ROWS, base_sha256="1" * 64), "a link from model .* found 111"),
    "to another model": (lambda place: (place.link(ROWS)[0], "2" * 64), "links to model 222"),
    "no result": (lambda place: place.link(ROWS, result_sha256=None), "a link expected, with metadata result_sha256"),
    "an old version": (lambda place: place.link(ROWS, version="1"), "update version 3 expected, found '1'"),
    "a codec for updates": (lambda place: place.link(ROWS, codec="full-f32"), "codec rows-f32 or top-rows, found"),
    "no codec": (lambda place: place.link(ROWS, codec="zip"), "codec 'zip' is unknown"),
    "another seed": (lambda place: place.link(ROWS, seed="x"), "seed"),
    "second from another model": (second_from_another_model, "a link from model"),
    "rows beyond the table": (raw({"table.rows": np.array([3, 4, 100], "<u4")}), "rising row numbers below 100"),
    "falling rows": (raw({"table.rows": np.array([4, 3, 90], "<u4")}), "rising row numbers"),
    "too few values": (raw({"table.values": np.zeros((2, 8), np.float32)}), "table.values"),
    "another type": (raw({"table.values": np.zeros((3, 8), np.float64)}), "table.values"),
    "a tensor that the model has not": (raw({"more": np.zeros(3, np.float32)}), "more is not part of the model"),
    "NaN": (raw({"table.values": np.full((3, 8), np.nan, np.float32)}), "table: element 24 is nan"),
    "infinite": (raw({"table.values": np.full((3, 8), np.inf, np.float32)}), "table: element 24 is inf"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_link_is_refused_and_nothing_changes(kind: str, place: Place) -> None:
    make, message = HOSTILE[kind]
    path, sha256 = make(place)
    before = {found.name for found in place.folder.iterdir()}
    with pytest.raises((UpdateError, WeightsError), match=message):
        place.apply(path, sha256)
    assert place.out.read_bytes() == b"as it was"
    assert {found.name for found in place.folder.iterdir()} == before
