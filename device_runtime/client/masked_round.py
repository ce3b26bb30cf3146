"""A phone's part in a masked round at a server, from its keys to its answer."""

import json
import time
from collections.abc import Callable

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
from phonograd.device_runtime.client.resumable_upload import Progress, UploadReceipt, upload_update
from phonograd.device_runtime.masked.phone import MaskedPhone, Request

WAIT_SECONDS = 5.0  # where the server does not say

# Called before each wait with what the phone waits for (keys, shares, list, agreement, answer) and the seconds.
MaskedWaiting = Callable[[str, float], None]


def take_part(
    server: Server,
    phone: MaskedPhone,
    name: str | None,
    progress: Progress | None = None,
    waiting: MaskedWaiting | None = None,
    retry: RetryPolicy | None = None,
) -> UploadReceipt | None:
    """Send what the phone says until its part is done; returns the masked update's receipt.

    None: it was uploaded by an earlier call, which this one goes on from. Broken connections are tried again as `retry`
    allows. Raises UpdateError for an answer that the phone may not go on with, ServerRefusedError,
    ServerUnreachableError.
    """
    receipt = None
    while True:
        request = phone.request()
        if request.action == "done":
            return receipt
        if request.action == "upload":
            receipt = upload_update(server, request.file, name, progress, retry)
            phone.take(None)
        else:
            phone.take(json.dumps(_answered(server, request, waiting, retry or RetryPolicy())))


def _answered(server: Server, request: Request, waiting: MaskedWaiting | None, retry: RetryPolicy) -> dict[str, object]:
    """The answer; while the server gathers what it needs for one, the same is sent again."""
    retries = Retries(retry)
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
        time.sleep(seconds)


def _seconds(server: Server, response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    if text and not text.isdigit():
        raise ServerRefusedError(f"{refusal(server, response)}: Retry-After in seconds expected, found {text[:20]!r}")
    return float(text) if text else WAIT_SECONDS
