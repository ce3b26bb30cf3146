"""The base model of a round: download it once, cache it by hash, and check it against the artifacts."""

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.server_client import CurrentRound, Server
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, TensorSpec, check_specs

MODELS_KEPT = 3  # of 183 MB each at full size: this round's, the previous round's, another server's
HEADER_BYTES = 1 << 20  # by which files of the same tensors may differ
KEPT_DAYS = 30.0  # of models that nobody uses, such as those of a server that is gone


@dataclass(frozen=True)
class BaseModel:
    """A model on this machine's disk; `downloaded_bytes` is 0 if it was there already."""

    path: Path
    sha256: str
    nbytes: int
    downloaded_bytes: int


def fetch_base_model(
    server: Server, artifacts: Artifacts, opened: CurrentRound, cache: Path, phone: str | None = None
) -> BaseModel:
    """The base model of the open round: the artifacts' weights, else from the cache, else downloaded.

    `cache` has a folder for each server and phone, as if each were a device of its own, of models named by their hash;
    the MODELS_KEPT most recently used are kept in each, those not used for KEPT_DAYS in none. What is downloaded are
    links from the last one used, or from the artifacts' weights, where the server has them; else the model. An
    interrupted download is resumed. `phone` is the phone that the server's ledger counts the download for. Raises
    WeightsError if the model is damaged or has another shape than the artifacts', StorageError, ServerRefusedError,
    ServerUnreachableError.
    """
    sha256, downloaded = opened.base_sha256, 0
    cache = cache / quote(str(server), safe="") / f"phone-{phone or _token_name(server)}"
    if sha256 == artifacts.weights_sha256:
        path = artifacts.path(WEIGHTS)
    else:
        path = cache / f"{sha256}.safetensors"
        with storage_errors(path):
            cache.mkdir(parents=True, exist_ok=True)
            known = path.is_file() and sha256_of_file(path) == sha256
        if not known:
            here = [*_by_use(cache), artifacts.path(WEIGHTS)]
            base = next(model for model in here if model != path)
            most = artifacts.path(WEIGHTS).stat().st_size + HEADER_BYTES
            downloaded = pull_model(server, path, base, sha256=sha256, phone=phone, most_bytes=most).received
        with storage_errors(path):
            # Only the access time: training refuses a file whose time of change differs from the one at its opening.
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
            _prune(cache)
            _prune_unused(cache.parent.parent)
    _check_fit(path, artifacts, sha256)
    return BaseModel(path, sha256, path.stat().st_size, downloaded)


def _token_name(server: Server) -> str:
    token = "" if isinstance(server, str) else server.token or ""
    return f"#{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def _by_use(cache: Path) -> list[Path]:
    return sorted(cache.glob("[!.]*.safetensors"), key=lambda path: path.stat().st_atime, reverse=True)


def _prune(cache: Path) -> None:
    for path in _by_use(cache)[MODELS_KEPT:]:
        path.unlink(missing_ok=True)


def _prune_unused(cache: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for path in cache.glob("*/phone-*/[!.]*.safetensors"):
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            if path.stat().st_atime < oldest:
                path.unlink()


def _check_fit(path: Path, artifacts: Artifacts, sha256: str) -> None:
    expected = [TensorSpec(entry.name, entry.dtype, entry.shape) for entry in artifacts.manifest.tensors]
    try:
        with TensorFile(path) as model:
            check_specs(f"model {sha256[:12]}… of the server", model.specs, expected)
    except WeightsError as error:
        raise WeightsError(
            f"{error}; give the artifacts that the server was started with, not {artifacts.folder}"
        ) from error
