"""Where a service keeps its models and updates: the state folder itself, or an object store that several servers share.

Objects are whole files that never change. With an object store the state folder has copies of them, which may be lost.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from phonograd.device_runtime.base.errors import MissingExtraError, StorageError, UsageError, how_to_install
from phonograd.server_agg.settings.storage import ServerStorage

Result = TypeVar("Result")
# fsspec's stores that are folders: writing there is neither atomic nor durable, and the state folder is both.
FOLDERS = ("file", "local")
PRESIGNED_SECONDS = 7200
DELETED_AT_ONCE = 16
# Of S3, in the environment and for botocore: checksums after a body, which AWS alone is sure to know.
CHECKSUMS = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "request_checksum_calculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "response_checksum_validation",
}


class Store:
    """Objects by name, such as `models/HASH.safetensors`; thread-safe. Every method raises StorageError.

    Here they are the state folder's files, and there is nothing to do. elsewhere: whether they are anywhere else.
    """

    elsewhere = False

    def put(self, source: Path, name: str) -> None:
        """Store a file, durably, in place of an object of this name. The state folder's is renamed there."""

    def get(self, name: str, target: Path) -> bool:
        """Copy an object to a file. Returns False if there is no such object elsewhere."""
        del name, target
        return False

    def has(self, name: str) -> bool:
        """Whether there is such an object elsewhere."""
        del name
        return False

    def names(self, folder: str) -> list[str]:
        """The objects elsewhere whose names begin with `folder/`; without it."""
        del folder
        return []

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects elsewhere; those that are missing are fine."""

    def presigned_url(self, name: str) -> str:
        """A URL for clients without an account there, good for PRESIGNED_SECONDS / 2 at least; the same for a while."""
        raise StorageError(f"{name}: expected an object store, to be fetched from; leave `downloads` out")


class ObjectStore(Store):
    """The objects below a URL of fsspec's, such as s3://bucket/folder."""

    elsewhere = True

    def __init__(self, url: str):
        self._url = url
        self._files, self._root = _open(url)
        self._signed = lru_cache(maxsize=256)(self._sign)

    def put(self, source: Path, name: str) -> None:
        """Upload it; object stores replace an object at once and durably."""
        self._do(name, lambda path: self._files.put_file(str(source), path))

    def write(self, data: bytes, name: str) -> None:
        """Store bytes as an object."""
        self._do(name, lambda path: self._files.pipe_file(path, data))

    def get(self, name: str, target: Path) -> bool:
        """Download a file."""
        return bool(self._do(name, lambda path: self._download(path, target)))

    def read(self, name: str) -> bytes:
        """The bytes of an object."""
        return bytes(self._do(name, self._files.cat_file))

    def has(self, name: str) -> bool:
        """Ask for it, not for what was heard of it before."""
        return bool(self._do(name, lambda path: self._without_cache().exists(path)))

    def names(self, folder: str) -> list[str]:
        """List them, not what was heard of them before."""
        paths = self._do(folder, lambda path: self._without_cache().find(path))
        return [str(path)[len(f"{self._root}/{folder}/") :] for path in paths]

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, some at a time: a round has as many as phones."""
        with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
            list(pool.map(lambda name: self._do(name, self._delete), names))

    def presigned_url(self, name: str) -> str:
        """Signed once a while: it takes milliseconds."""
        return self._signed(name, int(time.monotonic() // (PRESIGNED_SECONDS / 2)))

    def _sign(self, name: str, _while: int) -> str:
        return str(self._do(name, lambda path: self._files.sign(path, expiration=PRESIGNED_SECONDS)))

    def _download(self, path: str, target: Path) -> bool:
        try:
            self._files.get_file(path, str(target))
        except FileNotFoundError:
            return False
        return True

    def _without_cache(self) -> Any:
        self._files.invalidate_cache()
        return self._files

    def _delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(path)

    def _do(self, name: str, call: Callable[[str], Result]) -> Result:
        try:
            return call(f"{self._root}/{name}")
        except Exception as error:  # each store has errors of its own: of its network, its HTTP, its accounts
            raise StorageError(f"{self._url}: {name}: {type(error).__name__}: {error}; see `store`") from error


def store_at(url: str | None) -> Store:
    """The store at a URL of fsspec's; None: the state folder.

    Raises StorageError for a URL that no store can be opened at, MissingExtraError without its package.
    """
    return Store() if url is None else ObjectStore(url)


def store_of(storage: ServerStorage) -> Store:
    """The store of `storage`. Raises as `store_at` does, UsageError for a shared ledger without the URL of one."""
    if isinstance(storage.ledger, str) and storage.store is None:
        raise UsageError("`ledger` is given alone, expected the servers' `store` beside it: it has models and updates")
    return store_at(storage.store)


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        config = {name: os.environ.get(variable, "when_required") for variable, name in CHECKSUMS.items()}
        options = {"config_kwargs": config} if url.startswith(("s3:", "s3a:")) else {}
        files, root = fsspec.url_to_fs(url, **options)
    except ImportError as error:
        raise MissingExtraError(f"store {url}: {error}; for S3, {how_to_install('s3')}") from error
    except Exception as error:
        raise StorageError(f"store {url}: expected a URL such as s3://BUCKET/FOLDER: {error}") from error
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    if any(protocol in FOLDERS for protocol in protocols):
        raise StorageError(f"store {url}: expected an object store, found a folder; leave `store` out for the folder")
    return files, str(root).rstrip("/")
