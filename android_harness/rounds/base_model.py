"""The model a round begins with: fetched once, kept by its hash, and held to the artifacts."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors
from phonograd.device_runtime.client.server_client import CurrentRound, Server, download_model
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, TensorSpec, check_specs

MODELS_KEPT = 3  # of 183 MB each at full size: this round's, the last one's, another server's


@dataclass(frozen=True)
class BaseModel:
    """A model on this machine's disk; `downloaded_bytes` is 0 if it was here already."""

    path: Path
    sha256: str
    nbytes: int
    downloaded_bytes: int


def fetch_base(
    server: Server, artifacts: Artifacts, opened: CurrentRound, cache: Path, phone: str | None = None
) -> BaseModel:
    """The base model of the open round: the artifacts' own weights, one fetched before, or fetched now.

    `cache` is a folder of models named by their hash, of which the MODELS_KEPT used last stay; a download that broke
    off goes on. `phone` is who fetches it, for the server's ledger. Raises WeightsError if it does not fit the
    artifacts or came damaged, StorageError, ServerRefusedError, ServerUnreachableError.
    """
    sha256, downloaded = opened.base_sha256, 0
    if sha256 == artifacts.weights_sha256:
        path = artifacts.path(WEIGHTS)
    else:
        path = cache / f"{sha256}.safetensors"
        with storage_errors(path):
            cache.mkdir(parents=True, exist_ok=True)
            known = path.is_file() and sha256_of_file(path) == sha256
        if not known:
            downloaded = download_model(server, path, sha256=sha256, phone=phone).received
        with storage_errors(path):
            # Of use, not of change: who trains from the file has it refused when it was written to meanwhile.
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
            _prune(cache)
    _check_fit(path, artifacts, sha256)
    return BaseModel(path, sha256, path.stat().st_size, downloaded)


def _prune(cache: Path) -> None:
    by_use = sorted(cache.glob("*.safetensors"), key=lambda path: path.stat().st_atime, reverse=True)
    for path in by_use[MODELS_KEPT:]:
        path.unlink(missing_ok=True)


def _check_fit(path: Path, artifacts: Artifacts, sha256: str) -> None:
    expected = [TensorSpec(entry.name, entry.dtype, entry.shape) for entry in artifacts.manifest.tensors]
    try:
        with TensorFile(path) as model:
            check_specs(f"model {sha256[:12]}… of the server", model.specs, expected)
    except WeightsError as error:
        raise WeightsError(
            f"{error}; give the artifacts that the server was started with, not {artifacts.folder}"
        ) from error
