"""Requests to the aggregation server, by phones and commands.

Models and updates are streamed from and to disk, and their hashes are checked. Every function raises ServerRefusedError
if the server refuses, and ServerUnreachableError if it does not answer or the connection breaks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from phonograd.device_runtime.base.errors import ServerRefusedError, UsageError
from phonograd.device_runtime.client.connection import (
    Closing,
    Connection,
    RetryPolicy,
    Server,
    expected_fields,
    http_client,
    json_object,
)
from phonograd.device_runtime.client.protocol import METRIC_CHARACTERS, ONE_STEP_STRATEGIES, PHONE_HEADER
from phonograd.device_runtime.client.resumable_download import DownloadedModel, download_model
from phonograd.device_runtime.client.resumable_upload import UploadReceipt, upload_update

__all__ = [
    "Connection", "CurrentRound", "DownloadedModel", "RetryPolicy", "Server", "UploadReceipt", "Waiting", "ask",
    "current_round", "download_model", "exclusion_reason", "open_round", "report", "report_quality", "upload_update",
]  # fmt: skip


@dataclass(frozen=True)
class CurrentRound:
    """The open round: its number, its base model (hex SHA-256, size in bytes), and its updates so far and in total.

    accepted: None in a private round, where phones do not learn it. strategy: the server's name of it. masked: the
    settings of a masked round. run: what a phone's count of its rounds of dp-ftrl needs. closing_seconds: when to ask
    again if the round is closing: it takes no more updates, and the server trains its model; None while it is open.
    """

    round: int
    base_sha256: str
    model_bytes: int
    clients_per_round: int
    accepted: int | None
    codecs: tuple[str, ...]
    strategy: str = ""
    masked: str | None = None
    run: str | None = None
    closing_seconds: float | None = None

    def require_steps(self, steps: int | None) -> None:
        """Raise UsageError for training with one step a window where the round averages single steps."""
        if self.strategy in ONE_STEP_STRATEGIES and steps != 1:
            raise UsageError(
                f"`steps` 1 expected: round {self.round} has strategy {self.strategy}, which averages single steps"
            )

    def require_masked(self) -> None:
        """Raise ServerRefusedError for a round that is not masked, where the server would see the update."""
        if self.masked is None:
            raise ServerRefusedError(
                f"round {self.round} is not masked, and this phone takes part in masked rounds alone: an identity, "
                "certificate or vendor's key was given; leave these out to send an update that the server can read"
            )


# Called before each wait with the number of the round that is closing and the seconds to wait.
Waiting = Callable[[int, float], None]


def ask(
    server: Server,
    method: str,
    path: str,
    document: Mapping[str, Any] | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send a request and return the JSON object of its response. Raises ServerRefusedError unless it has `status`."""
    with http_client(server) as client:
        return json_object(server, client.request(method, path, json=document, headers=headers), status)


def current_round(server: Server) -> CurrentRound:
    """The server's open round, or the one that is closing. Raises ServerRefusedError, ServerUnreachableError."""
    with http_client(server) as client:
        response = client.get("/v1/round")
        document = json_object(server, response, 200)
    with expected_fields(server):
        closing = None if document.get("closing") is None else float(response.headers["Retry-After"])
        return msgspec.convert({**document, "strategy": document["strategy"], "closing_seconds": closing}, CurrentRound)


def open_round(server: Server, retry: RetryPolicy | None = None, waiting: Waiting | None = None) -> CurrentRound:
    """The server's open round; if a round is closing, waits for the next one, as the server says.

    Raises what `current_round` raises, and ServerRefusedError if the round closes for longer than `retry` allows.
    """
    closing = Closing(retry or RetryPolicy())
    while True:
        round_ = current_round(server)
        if round_.closing_seconds is None:
            return round_
        if waiting is not None:
            waiting(round_.round, round_.closing_seconds)
        if not closing.wait(round_.closing_seconds):
            raise ServerRefusedError(f"{server}: round {round_.round} is still closing; come again later")


def exclusion_reason(server: Server, phone: str) -> str | None:
    """Return why `phone` does not take part in the open round; None if it does."""
    document = ask(server, "GET", "/v1/round", headers={PHONE_HEADER: phone})
    with expected_fields(server):
        return None if document["participate"] else str(document["reason"])


def report(server: Server) -> dict[str, Any]:
    """The server's report of rounds and bytes, as phonograd.server_agg.report.document writes it."""
    return ask(server, "GET", "/v1/report")


def report_quality(server: Server, sha256: str, metric: str, value: float) -> None:
    """Report a model's quality to the server. metric: its name, of which at most 64 characters are kept."""
    name = "".join(character if " " <= character <= "~" else "?" for character in metric)[:METRIC_CHARACTERS]
    ask(server, "POST", f"/v1/models/{sha256}/quality", {"metric": name, "value": value})
