"""Sending a model: whole, as links from one that the phone has, in part, or not at all if the phone has it."""

import contextlib
import hashlib
import itertools
import re
from collections.abc import Generator, Sequence
from email.utils import formatdate
from functools import lru_cache
from pathlib import Path

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.files import HASH_CHUNK_BYTES
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.shortages import within_reserve

# One range, which a phone asks for to continue a download: from a first byte on, or the last bytes.
RANGE = re.compile(r"bytes=(?:(?P<start>[0-9]{1,18})-(?P<end>[0-9]{0,18})|-(?P<last>[0-9]{1,18}))\Z")


CHUNK_BYTES = 1 << 18  # with smaller ones a fast network takes twice the time
HELD_BYTES, MOST_HELD = 1 << 22, 4  # the phones of a round ask for the same links


class FilesResponse(StreamingResponse):
    """Files that follow each other, as if they were one, whole or the one range that the request asks for.

    For a thread that may wait for the disk: up to HELD_BYTES are read at once, and the last ones are kept.

    etag: what If-Range is compared with; asked: bytes of its body. The files are opened in turn: an old link that is
    deleted on the way breaks the connection, and the phone asks again. Raises RequestError (416) for a range that
    begins behind the end.
    """

    def __init__(self, request: Request, paths: Sequence[Path], etag: str, media_type: str):
        found = [path.stat() for path in paths]
        total = sum(one.st_size for one in found)
        match = _range(request, total, etag)
        start, stop = _byte_range(match, total) if match else (0, total)
        changed = formatdate(found[-1].st_mtime, usegmt=True)
        headers = {
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Content-Length": str(stop - start),
            "Last-Modified": changed,
        }
        if match:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{total}"
        sizes = [one.st_size for one in found]
        self.asked = 0 if request.method == "HEAD" else stop - start
        files = () if request.method == "HEAD" else tuple(zip(paths, sizes, strict=True))
        held = stop - start <= HELD_BYTES
        self._held = _read_range(files, found[-1].st_mtime_ns, start, stop) if held else None
        self._pieces = _bytes_of(files, start, stop)
        super().__init__(self._pieces, 206 if match else 200, headers, media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, what is in memory without waiting for threads."""
        if (held := self._held) is None:
            with contextlib.closing(self._pieces):  # a reader that goes away leaves its file open otherwise
                # The first one before the answer begins: the file may be gone, or there be no descriptor for it.
                first = await run_in_threadpool(next, self._pieces, b"")
                self.body_iterator = iterate_in_threadpool(itertools.chain((first,), self._pieces))
                await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for at in range(0, len(held), CHUNK_BYTES):
            await send({"type": "http.response.body", "body": held[at : at + CHUNK_BYTES], "more_body": True})
        await send({"type": "http.response.body"})


def _byte_range(match: re.Match[str], size: int) -> tuple[int, int]:
    if match["start"]:
        return int(match["start"]), min(int(match["end"]) + 1, size) if match["end"] else size
    return max(0, size - int(match["last"])), size


def _bytes_of(files: Sequence[tuple[Path, int]], start: int, stop: int) -> Generator[bytes, None, None]:
    begin = 0
    for path, size in files:
        at, end = max(start - begin, 0), min(stop - begin, size)
        begin += size
        if at >= end:
            continue
        with within_reserve(path.open("rb")) as file:
            file.seek(at)
            while at < end and (piece := file.read(min(CHUNK_BYTES, end - at))):
                at += len(piece)
                yield piece


@lru_cache(maxsize=MOST_HELD)
def _read_range(files: Sequence[tuple[Path, int]], changed: int, start: int, stop: int) -> bytes:
    """Read what `_bytes_of` yields, from files that were changed then."""
    del changed
    return b"".join(_bytes_of(files, start, stop))


def sha256_of_links(paths: Sequence[Path]) -> str:
    """Hex SHA-256 of links that follow each other. Read once, and again when a file has changed since.

    Raises OSError for a file that is missing, UpdateError for one whose content is not what its name says.
    """
    status = [path.stat() for path in paths]
    return _sha256_of_links(
        tuple((path, one.st_size, one.st_mtime_ns) for path, one in zip(paths, status, strict=True))
    )


@lru_cache(maxsize=1024)
def _sha256_of_links(files: tuple[tuple[Path, int, int], ...]) -> str:
    whole = hashlib.sha256()
    for path, *_ in files:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(HASH_CHUNK_BYTES):
                digest.update(chunk)
                whole.update(chunk)
        if digest.hexdigest() != path.stem:
            raise UpdateError(f"{path}: changed, its SHA-256 is {digest.hexdigest()}")
    return whole.hexdigest()


def _range(request: Request, size: int, etag: str) -> re.Match[str] | None:
    """The range of a file of `size` bytes that the request asks for; None for all, also instead of a malformed range
    (RFC 9110, 14.2) and of one of another file.
    """
    text = request.headers.get("Range", "")
    match = RANGE.match(text)
    if match is None or (match["end"] and int(match["end"]) < int(match["start"])):
        return None
    if request.headers.get("If-Range", etag) != etag:
        return None
    if (int(match["start"]) >= size) if match["start"] else (int(match["last"]) == 0):
        message = f"Range: a part of the {size} bytes expected, found {text[:80]}"
        raise RequestError(416, message, {"Content-Range": f"bytes */{size}"})
    return match


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether an If-None-Match header names `etag` (weak comparison, RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags
