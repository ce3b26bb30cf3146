"""Links: small files that lead from one model to the next, bit for bit. FORMAT.md, "Links".

A link is an update file whose metadata also name the model that it leads to. Several that follow each other, in one
file, lead a phone over several rounds.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.files import atomic_path, sha256_of_file, storage_errors
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import (
    TensorFile,
    WrittenFile,
    check_finite,
    encode_header,
    tile_ranges,
)
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, as_update_error, metadata_of

# A link's codec; others are for updates alone.
LinkCodec = Literal["rows-f32", "top-rows"]
RESULT = "result_sha256"
RESULT_METADATA = "result."  # begins the keys of the resulting model's own metadata
SENDER = "*"  # in place of a phone's name, none of which has this character, in the rule of seeds


def link_metadata(
    base_sha256: str, round_number: int, codec: LinkCodec, result_sha256: str, result: Mapping[str, str]
) -> dict[str, str]:
    """The metadata of a link. result: those of the model that it leads to."""
    seed = seed_of(base_sha256, round_number, SENDER)
    info = UpdateInfo(base_sha256, round_number, 1, codec, seed)
    of_result = {RESULT_METADATA + key: value for key, value in result.items()}
    return {**metadata_of(info), RESULT: result_sha256, **of_result}


class Link(UpdateFile):
    """A link open for reading. Raises WeightsError (no tensor file) or UpdateError (no link) on opening."""

    def __init__(self, path: Path, start: int | None = None):
        super().__init__(path, start)
        metadata, codecs = self.tensors.metadata, get_args(LinkCodec)
        self.result_sha256 = metadata.get(RESULT, "")
        self.result_metadata = {
            key.removeprefix(RESULT_METADATA): value
            for key, value in metadata.items()
            if key.startswith(RESULT_METADATA)
        }
        if RESULT not in metadata or self.info.codec not in codecs:
            self.tensors.close()
            raise UpdateError(
                f"{path}: a link expected, with metadata {RESULT} and codec {' or '.join(codecs)}, "
                f"found an update of codec {self.info.codec}; fetch the whole model"
            )

    def __enter__(self) -> "Link":
        return self


def apply_links(base: Path, base_sha256: str, links: Path, out: Path, result_sha256: str) -> WrittenFile:
    """Write the model `result_sha256`, to which a file of links leads from `base`, to `out`, atomically.

    base_sha256: the hash of `base`, which may be `out` too. Memory is a tile. Raises UpdateError for links that are
    damaged or do not lead from one of these models to the other, WeightsError for a damaged base, StorageError; then
    `out` is as before.
    """
    expected, metadata = base_sha256, dict[str, str]()
    for link in links_in(links):
        _require(links, "a link from", expected, link.info.base_sha256)
        expected, metadata = link.result_sha256, link.result_metadata
    _require(links, "links to", result_sha256, expected)
    with atomic_path(out) as draft:
        written = write_result(base, links_in(links), draft, metadata)
        _require(links, "links to", result_sha256, written.sha256)
    return written


def links_in(path: Path) -> Iterator[Link]:
    """The links that follow each other in a file, the oldest first, each open until the next is asked for.

    Raises UpdateError.
    """
    start, stop = 0, path.stat().st_size
    while start < stop or start == 0:  # an empty file is no link
        with Link(path, start) as link:
            yield link
            start += link.tensors.nbytes


def write_result(base: Path, links: Iterable[UpdateFile], out: Path, metadata: Mapping[str, str]) -> WrittenFile:
    """Write the model after `links` to `out`, a draft: no hash is checked, nothing synced.

    Raises UpdateError for parts that disagree and values that are not finite, StorageError.
    """
    with TensorFile(base) as old, storage_errors(out), out.open("wb") as copy:
        copy.write(encode_header(old.specs.values(), metadata))
        for name, spec in old.specs.items():
            for start, stop in tile_ranges(spec.elements):
                copy.write(old.read_range(name, start, stop).data)
    with storage_errors(out), out.open("r+b") as file, TensorFile(out) as model:
        for link in links:
            link.check_parts(model)
            _apply(link, model, file)
            file.flush()  # the next link begins at these weights
    return WrittenFile(out.stat().st_size, sha256_of_file(out))


def _apply(link: UpdateFile, model: TensorFile, file: BinaryIO) -> None:
    """Write a link's weights over those of `model`, whose file is open for writing too."""
    for spec in trained_specs(model):
        for start, found in link.tiles(spec, model):
            with as_update_error():
                check_finite(str(link.path), spec.name, found)
            values = np.ascontiguousarray(found, "<f4")
            if link.info.codec != "rows-f32":  # 0.0 added to -0.0 would change its bits
                before = model.read_range(spec.name, start, start + len(values))
                np.copyto(values, before, where=values == before)
            file.seek(model.place_of(spec.name, start))
            file.write(values.data)


def _require(path: Path, what: str, expected: str, found: str) -> None:
    if found != expected:
        raise UpdateError(f"{path}: {what} model {expected[:12]}… expected, found {found[:12]}…; fetch the whole model")
