"""Sending a model: whole, in part, or not at all if the phone has it."""

from pathlib import Path

from starlette.responses import FileResponse


class ModelFile(FileResponse):
    """A model's file, sent in pieces; Range and If-Range are the base class's, by its ETag: the model's hash."""

    # Larger pieces than the base class's 64 KiB: half the time on a fast network.
    chunk_size = 1 << 18

    def __init__(self, path: Path, etag: str):
        super().__init__(path, media_type="application/octet-stream", headers={"ETag": etag})


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether an If-None-Match header names `etag` (weak comparison, RFC 9110, 13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or "*" in tags
