"""Sending a model, and counting what was sent."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from device_runtime.errors import StorageError

log = logging.getLogger(__name__)


class CountedFile(FileResponse):
    """A file sent in pieces (ranges too); at the end, or where it broke off, `on_sent` gets the body bytes sent."""

    def __init__(self, path: Path, etag: str, on_sent: Callable[[int], None]):
        super().__init__(path, media_type="application/octet-stream", headers={"ETag": etag})
        self._on_sent = on_sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        sent = 0

        async def counting(message: Message) -> None:
            nonlocal sent
            await send(message)
            sent += len(message.get("body", b""))

        try:
            await super().__call__(scope, receive, counting)
        finally:
            # Shielded: bytes are counted even if the server stops in the middle of sending them.
            await asyncio.shield(run_in_threadpool(self._record, sent))

    def _record(self, sent: int) -> None:
        if sent == 0:  # HEAD
            return
        try:
            self._on_sent(sent)
        except StorageError as error:
            log.error("%s: %d bytes sent could not be written down: %s", self.path, sent, error)


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether an If-None-Match header names `etag` (weak comparison, RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags
