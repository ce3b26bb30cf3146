"""An object store with signed URLs, as phones see it."""

import http.server
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem


class SignedStore:
    """An object store's side that phones see. asked: the requests' headers; answer: what a request gets, if no file."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.cut = 0  # bytes after which the next answer breaks off
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                store.asked.append({name.lower(): value for name, value in self.headers.items()})
                path, _, signature = self.path.partition("?")
                data = bytes(MemoryFileSystem.store[path].getvalue()) if signature == "signature=1" else b""
                start = int((re.match("bytes=([0-9]+)-", self.headers.get("Range", "")) or "00")[1])
                told = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
                status, headers, body = store.answer or (206 if start else 200, told, data[start:])
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[: store.cut or None])
                store.cut = 0

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def signed_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[SignedStore]:
    store = SignedStore()
    signed = lambda _, path, **__: f"{store.url}{path}?signature=1"  # noqa: E731
    monkeypatch.setattr(MemoryFileSystem, "sign", signed)
    thread = threading.Thread(target=store.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield store
    store.server.shutdown()
    thread.join()
    store.server.server_close()
