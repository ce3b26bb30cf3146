"""Links: small files that lead from one model to the next, bit for bit. FORMAT.md, "Links"."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.header import new
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import native_weights

# A link's codec; others are for updates alone.
LinkCodec = Literal["rows-f32", "top-rows"]
PublishBits = Literal[1, 2, 4]  # a weight of codec top-rows
SENDER = "*"  # in place of a phone's name, none of which has this character, in the rule of seeds


@dataclass(frozen=True)
class Pulled:
    """A model that was written: its bytes, and the links that led to it, 0 if it was fetched whole."""

    nbytes: int
    links: int


def write_lossless_link(
    path: Path, base: TensorFile, base_sha256: str, model: TensorFile, model_sha256: str
) -> WrittenFile:
    """Write the link of codec rows-f32 from `base` to `model`, a round's, atomically. Memory is a tile.

    Raises WeightsError, StorageError.
    """
    return _write_link(path, base, model, _options(base_sha256, model, "rows-f32", model_sha256=model_sha256))[0]


def write_lossy_link(
    path: Path,
    result: Path,
    base: TensorFile,
    base_sha256: str,
    model: TensorFile,
    residual: TensorFile | None,
    rows: int,
    bits: int,
) -> tuple[WrittenFile, WrittenFile]:
    """Write a link of codec top-rows from `base` to near `model` and `residual`, and to `result` where it leads to.

    model: the round's; residual: what earlier links left out, float32 tensors to add to it. rows: sent of all matrices
    together, at `bits` a weight. Returns the link and the result, whose metadata are those of `model`. Both are written
    atomically; memory is the rows and a tile. Raises WeightsError, UpdateError for a result that is not finite,
    StorageError.
    """
    left_out = None if residual is None else native_weights(residual)
    options = _options(base_sha256, model, "top-rows", residual=left_out, rows=rows, bits=bits, result=result)
    return _write_link(path, base, model, options)


def _options(base_sha256: str, model: TensorFile, codec: LinkCodec, **of_codec: object) -> Any:
    number = int(model.metadata["round"])
    return new(
        "pg_link_options",
        base_sha256=base_sha256,
        codec=codec,
        round=number,
        seed=seed_of(base_sha256, number, SENDER),
        **of_codec,
    )


def _write_link(path: Path, base: TensorFile, model: TensorFile, options: Any) -> tuple[WrittenFile, WrittenFile]:
    link, result = load_library().call("pg_link_write", native_weights(base), native_weights(model), options, path)
    return WrittenFile(link.nbytes, link.sha256.decode()), WrittenFile(result.nbytes, result.sha256.decode())


def pull_links(fetched: Path, base: Path, out: Path, sha256: str) -> Pulled:
    """Write model `sha256`, to which a file of links leads from `base`, to `out`, atomically; `base` may be `out`.

    A whole model in place of links is copied. Memory is a piece of a tensor. Raises UpdateError for links that are
    damaged or do not lead from one of these models to the other, WeightsError for a damaged or another whole model,
    StorageError; then `out` is as before.
    """
    options = new("pg_pull_options", fetched=fetched, base=base, out=out, sha256=sha256)
    (facts,) = load_library().call("pg_pull", options)
    return Pulled(facts.bytes, facts.links)
