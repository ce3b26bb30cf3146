"""Updates outside a round: trained weights to the file that travels, back to weights, and many of them to one model."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.api.inputs import Engine, StrPath, chosen_seed, require_engine, require_output, workers_of
from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile, load_tensors
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from phonograd.server_agg.aggregation.folding import fold_files, write_average
from phonograd.server_agg.aggregation.settings import StrategySettings, Weighting


@dataclass(frozen=True)
class EncodedUpdate:
    """An update on disk: what it says of itself, and its size and hash."""

    info: UpdateInfo
    file: WrittenFile


def encode_update(
    weights: StrPath | Mapping[str, Array],
    base: Artifacts | StrPath,
    out: StrPath,
    *,
    tokens: int,
    codec: str = DEFAULT_CODEC,
    round_number: int = 1,
    seed: int | None = None,
    phone: str | None = None,
) -> EncodedUpdate:
    """Encode trained weights against the model they were trained from, into the file `out` that a phone sends.

    weights: canonical float32 tensors (LanguageModelConfig.tensor_specs), or a file of them; base: an artifacts folder
    that is open, or a tensor file; tokens: what they were trained on. The seed is of codecs that round at random:
    `seed`, or it follows from model, round and `phone`, or is random. Raises WeightsError, UpdateError,
    UsageError, StorageError.
    """
    require_output(out, weights, base)
    with _base_file(base) as base_file:
        base_sha256 = base_file.sha256()
        seed = chosen_seed(seed, phone, lambda: base_sha256, round_number)
        info = UpdateInfo(base_sha256, round_number, tokens, codec, seed)
        trained = load_tensors(Path(weights)) if isinstance(weights, str | os.PathLike) else weights
        return EncodedUpdate(info, write_update(Path(out), base_file, trained, info))


def read_update(update: StrPath) -> UpdateInfo:
    """What an update says of itself: model, round, tokens, codec and seed. Raises UpdateError."""
    with UpdateFile(Path(update)) as encoded:
        return encoded.info


def decode_update(update: StrPath, base: Artifacts | StrPath) -> dict[str, Array]:
    """The trained weights that an update stands for, canonical and float32, after checking all of it.

    base: the model it was made from, as in `encode_update`. Raises WeightsError, UpdateError.
    """
    with _base_file(base) as base_file, UpdateFile(Path(update)) as encoded:
        encoded.check(base_file, base_file.sha256())
        return encoded.weights(base_file)


def fold_updates(
    updates: Sequence[StrPath],
    base: Artifacts | StrPath,
    out: StrPath,
    *,
    weighting: Weighting = "tokens",
    engine: Engine = "local",
    workers: int | None = None,
) -> WrittenFile:
    """Average updates as a server's `fedavg` does, and write the next model to `out`.

    base: the model that all of them were made from, as in `encode_update`. weighting: by `tokens`, or `equal`. The
    file is the same to the bit in any order of the updates, and that of a server's round. Memory is 8 bytes a
    parameter. engine: `ray` sums a shard in each of Ray's `workers` (None is one a core). Raises WeightsError,
    UpdateError (another base; no update), UsageError for another weighting or engine or an update that
    comes twice, StorageError; with Ray also MissingExtraError, OutOfMemoryError.
    """
    try:
        settings = StrategySettings(weighting=weighting)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not updates:
        raise UsageError("updates: at least one expected, found none")
    require_output(out, base, *updates)
    require_engine(engine)
    paths = [Path(update) for update in updates]
    _require_different(paths)
    with _base_file(base) as base_file:
        base_sha256 = base_file.sha256()
        if engine == "ray":
            from phonograd.adapters.ray.folding import fold_in_ray

            fold = fold_in_ray(base_file, base_sha256, paths, settings, workers_of(workers))
        else:
            fold = fold_files(base_file, base_sha256, paths, settings)
        return write_average(fold, paths, Path(out))


def _require_different(updates: Sequence[Path]) -> None:
    """Raise UsageError for two updates of the same bytes, which would count a phone twice."""
    known: dict[str, Path] = {}
    for path in updates:
        try:
            first = known.setdefault(sha256_of_file(path), path)
        except OSError as error:
            raise UpdateError(f"{path}: cannot be opened: {error.strerror}") from error
        if first is not path:
            raise UsageError(f"{path}: has the same bytes as {first}; give each phone's update once")


def _base_file(base: Artifacts | StrPath) -> contextlib.AbstractContextManager[TensorFile]:
    return TensorFile(base.path(WEIGHTS) if isinstance(base, Artifacts) else Path(base))
