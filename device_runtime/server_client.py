"""The aggregation server as a phone, or whoever stands in for one, talks to it.

Models and updates go from and to disk in pieces, with their hashes checked. Every function raises
ServerRefusedError if the server says no and ServerUnreachableError if it does not answer or the connection breaks off.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from device_runtime.errors import ServerRefusedError, WeightsError
from device_runtime.files import HASH_CHUNK_BYTES, atomic_file
from device_runtime.resumable_upload import UploadReceipt, upload_update
from device_runtime.server_connection import Connection, Server, document_of, expected_fields, refusal, talking_to
from device_runtime.server_protocol import METRIC_CHARACTERS, PHONE_HEADER

ETAG = re.compile(r'(?:W/)?"([0-9a-f]{64})"\Z')

__all__ = [
    "Connection", "CurrentRound", "DownloadedModel", "Server", "UploadReceipt", "ask", "current_round",
    "download_model", "participation", "report", "report_quality", "upload_update",
]  # fmt: skip


@dataclass(frozen=True)
class CurrentRound:
    """The open round: its number, its base model (hex SHA-256, size in bytes) and how full it is.

    accepted: None where the server does not tell phones, in a private round.
    """

    round: int
    base_sha256: str
    model_bytes: int
    clients_per_round: int
    accepted: int | None
    codecs: tuple[str, ...]


@dataclass(frozen=True)
class DownloadedModel:
    """A model on disk: hex SHA-256 and size in bytes.

    `changed` is false if the known model was still the one asked for; then nothing was written and `nbytes` is 0.
    """

    sha256: str
    nbytes: int
    changed: bool


def ask(
    server: Server,
    method: str,
    path: str,
    document: Mapping[str, Any] | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send a request, with a JSON body or none, that is answered with `status` and a JSON object: the object."""
    with talking_to(server) as client:
        return document_of(server, client.request(method, path, json=document, headers=headers), status)


def current_round(server: Server) -> CurrentRound:
    """The round that is open at `server`."""
    document = ask(server, "GET", "/v1/round")
    with expected_fields(server):
        return CurrentRound(
            round=int(document["round"]),
            base_sha256=str(document["base_sha256"]),
            model_bytes=int(document["model_bytes"]),
            clients_per_round=int(document["clients_per_round"]),
            accepted=None if document["accepted"] is None else int(document["accepted"]),
            codecs=tuple(map(str, document["codecs"])),
        )


def participation(server: Server, phone: str) -> str | None:
    """Why `phone` has no place in the open round; None if it has one."""
    document = ask(server, "GET", "/v1/round", headers={PHONE_HEADER: phone})
    with expected_fields(server):
        return None if document["participate"] else str(document["reason"])


def download_model(
    server: Server, path: Path, known_sha256: str | None = None, *, sha256: str | None = None, phone: str | None = None
) -> DownloadedModel:
    """Fetch model `sha256`, or the current one, to `path`: atomically, and not at all if it is `known_sha256`.

    `phone` is a name for the server's ledger. Raises WeightsError if the bytes are not those the server announced,
    StorageError when the disk refuses; then `path` is as before.
    """
    headers = {"If-None-Match": f'"{known_sha256}"'} if known_sha256 else {}
    if phone is not None:
        headers[PHONE_HEADER] = phone
    url = f"/v1/models/{sha256}" if sha256 else "/v1/model"
    with talking_to(server) as client, client.stream("GET", url, headers=headers) as response:
        if response.status_code == 304 and known_sha256:
            return DownloadedModel(known_sha256, 0, changed=False)
        if response.status_code != 200:
            response.read()
            raise refusal(server, response)
        tag = ETAG.match(response.headers.get("ETag", ""))
        if tag is None or sha256 not in (None, tag[1]):
            raise ServerRefusedError(
                f"{server}: a model's hash expected as ETag, found another; is it phonograd serve?"
            )
        return DownloadedModel(tag[1], _save(server, response, path, tag[1]), changed=True)


def report(server: Server) -> dict[str, Any]:
    """The server's report of rounds and bytes, as server_agg.report writes it."""
    return ask(server, "GET", "/v1/report")


def report_quality(server: Server, sha256: str, metric: str, value: float) -> None:
    """Tell the server what model `sha256` is worth by `metric`, of which at most 64 characters are kept."""
    name = "".join(character if " " <= character <= "~" else "?" for character in metric)[:METRIC_CHARACTERS]
    ask(server, "POST", f"/v1/models/{sha256}/quality", {"metric": name, "value": value})


def _save(server: Server, response: httpx.Response, path: Path, sha256: str) -> int:
    digest = hashlib.sha256()
    nbytes = 0
    with atomic_file(path) as file:
        for piece in response.iter_bytes(HASH_CHUNK_BYTES):
            digest.update(piece)
            file.write(piece)
            nbytes += len(piece)
        if digest.hexdigest() != sha256:
            raise WeightsError(
                f"model from {server}: SHA-256 {sha256[:12]}… expected, the {nbytes} bytes received have "
                f"{digest.hexdigest()[:12]}…; fetch it again"
            )
    return nbytes
