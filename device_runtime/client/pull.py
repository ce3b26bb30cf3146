"""Bringing a model up to date: by links from a model that is here, or whole. FORMAT.md, "Links"."""

import contextlib
import dataclasses
import shutil
from pathlib import Path

from phonograd.device_runtime.base.errors import UnsupportedError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import atomic_file, sha256_of_file
from phonograd.device_runtime.client.connection import RetryPolicy, Server
from phonograd.device_runtime.client.resumable_download import Download, DownloadedModel, download_model
from phonograd.device_runtime.client.server_client import current_round
from phonograd.device_runtime.update.links import Pulled, pull_links


def pull_model(
    server: Server,
    path: Path,
    base: Path | None = None,
    *,
    sha256: str | None = None,
    phone: str | None = None,
    retry: RetryPolicy | None = None,
    most_bytes: int | None = None,
) -> DownloadedModel:
    """Make the file at `path` model `sha256`, or the server's current one, fetching as few bytes as the server allows.

    base: a model that is here, `path` itself if None. The server sends links from it where it has them and they are
    smaller, else the whole model; so does this function where links are damaged. Interrupted downloads resume as those
    of `download_model`, whose errors it raises; then `path` is as before. most_bytes: of what is fetched.
    """
    base = base or path
    try:
        base_sha256 = sha256_of_file(base)
    except FileNotFoundError:
        return download_model(server, path, sha256=sha256, phone=phone, retry=retry, most_bytes=most_bytes)
    except OSError as error:
        raise WeightsError(f"{base}: cannot be read: {error.strerror}") from error
    wanted = sha256 or current_round(server).base_sha256
    if wanted == base_sha256:
        return _copy_base(base, path, wanted)
    pull = _Pull(server, path, f"/v1/models/{wanted}?base={base_sha256}", None, phone, most_bytes=most_bytes)
    pull.base, pull.wanted = base, wanted
    with contextlib.suppress(WeightsError):  # other bytes than the server announced: damaged on its disk
        model = pull.fetch(retry)
        if not pull.refused:
            return model
    whole = download_model(server, path, sha256=wanted, phone=phone, retry=retry, most_bytes=most_bytes)
    return dataclasses.replace(whole, received=pull.received + whole.received)


class _Pull(Download):
    """The download of what leads from `base` to `wanted`. refused: it was links, and they do not."""

    refused = False
    base: Path
    wanted: str

    def finish(self, part: Path, sha256: str) -> DownloadedModel:
        if sha256 == self.wanted:
            return super().finish(part, sha256)
        pulled = Pulled(0, 0)
        try:
            pulled = pull_links(part, self.base, self.path, self.wanted)
        except (UpdateError, WeightsError, UnsupportedError):  # damaged, or no library here to apply them
            self.refused = True
        self.remove_parts()
        return DownloadedModel(self.wanted, pulled.nbytes, not self.refused, self.received, pulled.links)


def _copy_base(base: Path, path: Path, sha256: str) -> DownloadedModel:
    if path.exists() and path.samefile(base):
        return DownloadedModel(sha256, 0, changed=False)
    with base.open("rb") as source, atomic_file(path) as copy:
        shutil.copyfileobj(source, copy)
        return DownloadedModel(sha256, copy.tell(), changed=True)
