"""A phone that speaks tus a request at a time, so that a test can say each of them wrongly."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.server_agg.workshop import RunningServer

TUS = {"Tus-Resumable": "1.0.0"}
BODY = "application/offset+octet-stream"


def encoded(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def metadata(**facts: str) -> str:
    return ",".join(f"{key} {encoded(value)}" for key, value in facts.items())


def checksum(data: bytes, algorithm: str = "sha256") -> dict[str, str]:
    return {"Upload-Checksum": f"{algorithm} {encoded(hashlib.new(algorithm, data).digest())}"}


@dataclass
class TusPhone:
    """`data` is the update it sends; `path` is the upload's URL once it is announced."""

    http: httpx.Client
    name: str
    data: bytes
    path: str = ""

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**TUS, "Phonograd-Phone": self.name, **(more or {})}

    def patch_head(self, offset: int = 0, **more: str) -> bytes:
        """The head of a PATCH of all bytes, for a socket."""
        headers = {"Host": "127.0.0.1", "Upload-Offset": str(offset), "Content-Type": BODY}
        headers = self.headers(headers | {"Content-Length": str(len(self.data))} | more)
        lines = (f"PATCH {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", "")
        return "\r\n".join(lines).encode()

    def create_upload(self, content: bytes = b"", **changes: str) -> httpx.Response:
        """`changes`: headers, `_` for `-`; without any, the update's hash is announced."""
        sha256 = hashlib.sha256(self.data).hexdigest()
        wanted = {"Upload-Length": str(len(self.data)), "Upload-Metadata": metadata(sha256=sha256)}
        wanted |= {name.replace("_", "-"): value for name, value in changes.items()}
        answer = self.http.post("/v1/uploads", headers=self.headers(wanted), content=content)
        self.path = answer.headers.get("Location", self.path)
        return answer

    def patch(self, offset: int, content: bytes, more: Mapping[str, str] | None = None) -> httpx.Response:
        wanted = {"Upload-Offset": str(offset), "Content-Type": BODY, **(more or {})}
        return self.http.patch(self.path, headers=self.headers(wanted), content=content)

    def head(self) -> httpx.Response:
        return self.http.head(self.path, headers=self.headers())

    def offset(self) -> int:
        return int(self.head().headers["Upload-Offset"])

    def delete(self) -> httpx.Response:
        return self.http.delete(self.path, headers=self.headers())

    def outcome(self) -> httpx.Response:
        return self.http.get(self.path, headers=self.headers())

    def finish(self) -> dict[str, Any]:
        """Send all that is missing and have it decided on; the receipt."""
        assert self.send().is_success
        if self.outcome().json()["state"] == "receiving":  # whole already, and refused by the disk
            assert self.patch(len(self.data), b"").status_code == 204
        receipt: dict[str, Any] = self.outcome().json()["receipt"]
        return receipt

    def send(self, piece: int = 1 << 20) -> httpx.Response:
        """Announce and send all that is missing, `piece` bytes a request; the last answer."""
        answer = self.create_upload()
        offset = int(answer.headers.get("Upload-Offset", len(self.data)))
        while answer.is_success and offset < len(self.data):
            answer = self.patch(offset, self.data[offset : offset + piece])
            offset += piece
        return answer


def phone_with(http: httpx.Client, name: str, update: Path) -> TusPhone:
    return TusPhone(http, name, update.read_bytes())


def announced(http: httpx.Client, name: str, update: Path) -> TusPhone:
    phone = phone_with(http, name, update)
    phone.create_upload()
    return phone


def incoming(server: RunningServer) -> list[str]:
    return sorted(path.name for path in server.coordinator.folder.uploads.iterdir())
