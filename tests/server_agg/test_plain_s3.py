"""Stores that speak S3 and not all that AWS does: no checksums after the body, and parts of one size."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage.stores import ObjectStore
from tests.server_agg.conftest import Certificates

pytestmark = pytest.mark.long

MIB = 1 << 20
CHECKSUMS = "AWS_REQUEST_CHECKSUM_CALCULATION"


@dataclass
class PlainS3:
    """An S3 of moto's that refuses what R2 and older MinIO refuse. parts: the sizes of those that came, in order."""

    moto: Any
    parts: dict[int, int] = field(default_factory=dict)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """A WSGI application."""
        signed, encoding = environ.get("HTTP_X_AMZ_CONTENT_SHA256", ""), environ.get("HTTP_CONTENT_ENCODING", "")
        if "HTTP_X_AMZ_TRAILER" in environ or "aws-chunked" in encoding or signed.startswith("STREAMING"):
            start_response("501 Not Implemented", [("Content-Length", "0")])
            return [environ["wsgi.input"].read() and b""]
        if part := re.search(r"partNumber=(\d+)", environ["QUERY_STRING"]):
            self.parts[int(part[1])] = int(environ["CONTENT_LENGTH"])
        answer: Iterable[bytes] = self.moto(environ, start_response)
        return answer


@pytest.fixture
def plain_s3(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlainS3]:
    """TLS is needed: over plain HTTP botocore sends no checksum after a body."""
    import s3fs
    from moto.server import DomainDispatcherApplication, create_backend_app  # slow to import
    from werkzeug.serving import make_server

    store = PlainS3(DomainDispatcherApplication(create_backend_app))
    files = (str(certificates.certificate), str(certificates.key))
    with make_server("127.0.0.1", 0, store, threaded=True, ssl_context=files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        for name, value in (
            ("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.server_port}"),
            ("AWS_CA_BUNDLE", str(certificates.authority)),
            ("AWS_ACCESS_KEY_ID", "any"),
            ("AWS_SECRET_ACCESS_KEY", "any"),
            ("AWS_DEFAULT_REGION", "us-east-1"),
        ):
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(CHECKSUMS, raising=False)
        s3fs.S3FileSystem.clear_instance_cache()
        try:
            s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)  # moto's are this process's
            yield store
        finally:
            server.shutdown()
            thread.join()
            s3fs.S3FileSystem.clear_instance_cache()


def test_takes_what_we_store(plain_s3: PlainS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s3fs.core.calculate_chunksize", lambda size, chunksize=None: 5 * MIB)
    store, file = ObjectStore("s3://bucket/folder"), tmp_path / "file"
    file.write_bytes(bytes(13 * MIB))
    store.put(file, "models/large")
    assert [plain_s3.parts[number] for number in sorted(plain_s3.parts)] == [5 * MIB, 5 * MIB, 3 * MIB]
    store.write(b"abc", "updates/small")
    assert (store.read("updates/small"), len(store.read("models/large"))) == (b"abc", 13 * MIB)
    assert store.get("updates/small", tmp_path / "got") and store.names("updates") == ["small"]
    store.delete(["updates/small"])
    assert not store.has("updates/small")


def test_checksums_where_they_are_asked_for(plain_s3: PlainS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKSUMS, "when_supported")
    with pytest.raises(StorageError, match="updates/small: "):
        ObjectStore("s3://bucket/folder").write(b"abc", "updates/small")
