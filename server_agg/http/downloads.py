"""Sending a model: whole, in part, or not at all if the phone has it."""

import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse

from phonograd.server_agg.refusals import RequestError

# One range, as a phone asks that goes on with a download; from the front, or the last bytes.
RANGE = re.compile(r"bytes=(?:(?P<start>[0-9]{1,18})-(?P<end>[0-9]{0,18})|-(?P<last>[0-9]{1,18}))\Z")


class ModelFile(FileResponse):
    """A model's file, sent in pieces; Range and If-Range are the base class's, by its ETag: the model's hash."""

    # Larger pieces than the base class's 64 KiB: half the time on a fast network.
    chunk_size = 1 << 18

    def __init__(self, path: Path, etag: str):
        super().__init__(path, media_type="application/octet-stream", headers={"ETag": etag})


def check_range(request: Request, path: Path, etag: str) -> None:
    """Leave a Range header for ModelFile only if it is one that can be served; any other is ignored (RFC 9110, 14.2).

    Raises RequestError (416) for one that begins behind the file's end.
    """
    text = request.headers.get("Range")
    if text is None:
        return
    match, size = RANGE.match(text), path.stat().st_size
    good = match is not None and not (match["end"] and int(match["end"]) < int(match["start"]))
    if good and match is not None and request.headers.get("If-Range", etag) == etag:
        if (int(match["start"]) >= size) if match["start"] else (int(match["last"]) == 0):
            error = RequestError(416, f"Range: a part of the {size} bytes expected, found {text[:80]}")
            error.headers["Content-Range"] = f"bytes */{size}"
            raise error
        return
    request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] != b"range"]


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether an If-None-Match header names `etag` (weak comparison, RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags
