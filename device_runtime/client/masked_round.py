"""A phone's part in a masked round at a server, from its keys to its answer."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import httpx

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError
from phonograd.device_runtime.client.connection import (
    Retries,
    RetryPolicy,
    Server,
    http_client,
    json_object,
    refusal,
)
from phonograd.device_runtime.client.resumable_upload import UploadReceipt
from phonograd.device_runtime.masked.phone import Request

WAIT_SECONDS = 5.0  # where the server does not say

# Called before each wait with what the phone waits for (keys, draws, shares, list, agreement) and the seconds.
MaskedWaiting = Callable[[str, float], None]


class Part(Protocol):
    """A phone's part in a masked round, as MaskedPhone does it."""

    def request(self) -> Request:
        """What to do now; the same until `take`."""

    def take(self, answer: str | None) -> None:
        """Take the body of the answer; None after an upload."""


def take_part(
    server: Server,
    phone: Part,
    upload: Callable[[Path], UploadReceipt],
    waiting: MaskedWaiting | None = None,
    sleep: Callable[[float], None] = time.sleep,
    retry: RetryPolicy | None = None,
) -> UploadReceipt | None:
    """Send what the phone says until its part is done; returns the masked update's receipt.

    None: it was uploaded by an earlier call, which this one goes on from. upload: sends the masked update. sleep: waits
    as many seconds as the server says. Broken connections are tried again as `retry` allows. Raises UpdateError for an
    answer that the phone may not go on with, ServerRefusedError, ServerUnreachableError, and what `upload` and `sleep`
    raise.
    """
    retries = Retries(retry or RetryPolicy())
    receipt = None
    while True:
        request = phone.request()
        if request.action == "done":
            return receipt
        if request.action == "upload":
            receipt = upload(request.file)
            phone.take(None)
        else:
            phone.take(json.dumps(_ask_for_answer(server, request, waiting, sleep, retries)))


def _ask_for_answer(
    server: Server, request: Request, waiting: MaskedWaiting | None, sleep: Callable[[float], None], retries: Retries
) -> dict[str, object]:
    """Return the server's answer; repeat the request while the server gathers what it needs for one."""
    while True:
        try:
            with http_client(server) as client:
                response = client.post(request.path, content=request.body, headers={"Content-Type": "application/json"})
        except ServerUnreachableError:
            if not retries.wait():
                raise
            continue
        retries.reset()
        if response.status_code != 202:
            return json_object(server, response, 200)
        seconds = _seconds(server, response)
        if waiting is not None:
            waiting(request.path.rpartition("/")[2], seconds)
        sleep(seconds)


def _seconds(server: Server, response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    if text and not text.isdigit():
        raise ServerRefusedError(f"{refusal(server, response)}: Retry-After in seconds expected, found {text[:20]!r}")
    return float(text) if text else WAIT_SECONDS
