"""The aggregation server as a phone, or whoever stands in for one, talks to it.

Models and updates go from and to disk in pieces, with their hashes checked. Every function raises
ServerRefusedError if the server says no and ServerUnreachableError if it does not answer or the connection breaks off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phonograd.device_runtime.client.connection import (
    Connection,
    Patience,
    Server,
    document_of,
    expected_fields,
    talking_to,
)
from phonograd.device_runtime.client.protocol import METRIC_CHARACTERS, PHONE_HEADER
from phonograd.device_runtime.client.resumable_download import DownloadedModel, download_model
from phonograd.device_runtime.client.resumable_upload import UploadReceipt, upload_update

__all__ = [
    "Connection", "CurrentRound", "DownloadedModel", "Patience", "Server", "UploadReceipt", "ask", "current_round",
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
    """The round that is open at `server`. Raises ServerRefusedError, ServerUnreachableError."""
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


def report(server: Server) -> dict[str, Any]:
    """The server's report of rounds and bytes, as phonograd.server_agg.report.document writes it."""
    return ask(server, "GET", "/v1/report")


def report_quality(server: Server, sha256: str, metric: str, value: float) -> None:
    """Tell the server what model `sha256` is worth by `metric`, of which at most 64 characters are kept."""
    name = "".join(character if " " <= character <= "~" else "?" for character in metric)[:METRIC_CHARACTERS]
    ask(server, "POST", f"/v1/models/{sha256}/quality", {"metric": name, "value": value})
