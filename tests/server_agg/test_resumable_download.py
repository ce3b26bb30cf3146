"""A model that breaks off on its way goes on at the byte that is here, and nothing comes twice."""

import fcntl
import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, StorageError, WeightsError
from phonograd.device_runtime.client.server_client import RetryPolicy, download_model
from phonograd.server_agg.report.document import read_phones
from tests.server_agg.workshop import RunningServer, Workshop
from tests.support.waiting import until

MODEL = bytes(range(256)) * 20
SHA256 = hashlib.sha256(MODEL).hexdigest()
QUICK = RetryPolicy(attempts=3, first_wait_seconds=0.001, longest_wait_seconds=0.001)
ONCE = RetryPolicy(attempts=1)


@dataclass
class Network:
    """A server with ranges behind a network that breaks each connection after so many bytes of a body."""

    url: str = ""
    model: bytes = MODEL
    breaks_after: int = 2000
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)  # Range and If-Range
    shifted: bool = False
    without_ranges: bool = False

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.model).hexdigest()}"'


@pytest.fixture
def network() -> Iterator[Network]:
    net = Network()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            net.asked.append((asked, self.headers.get("If-Range")))
            ranged = asked and self.headers.get("If-Range") == net.etag and not net.without_ranges
            start = int(asked[6:-1]) if asked and ranged else 0
            body = net.model[start:]
            if start and not body:
                self.send_response(416)
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            self.send_header("ETag", net.etag)
            self.send_header("Content-Length", str(len(body)))
            if start:
                first = start + net.shifted
                self.send_header("Content-Range", f"bytes {first}-{len(net.model) - 1}/{len(net.model)}")
            self.end_headers()
            self.wfile.write(body[: net.breaks_after])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        net.url = f"http://127.0.0.1:{server.server_port}"
        yield net
        server.shutdown()
        thread.join()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model[1].safetensors"  # a name that means something to glob


def part_of(out: Path, data: bytes, sha256: str = SHA256) -> Path:
    part = out.with_name(f".{out.name}.{sha256}.part")
    part.write_bytes(data)
    return part


def test_what_breaks_off_goes_on_in_the_same_call(network: Network, out: Path) -> None:
    fetched = download_model(network.url, out, retry=QUICK)
    assert (fetched.sha256, fetched.nbytes, fetched.received) == (SHA256, len(MODEL), len(MODEL))
    assert out.read_bytes() == MODEL
    assert network.asked == [
        (None, None),
        ("bytes=2000-", network.etag),
        ("bytes=4000-", network.etag),
    ]
    assert os.listdir(out.parent) == [out.name]


@pytest.mark.parametrize("sha256", [None, SHA256])
def test_and_in_a_later_one(sha256: str | None, network: Network, out: Path) -> None:
    for _ in range(2):
        with pytest.raises(ServerUnreachableError):
            download_model(network.url, out, sha256=sha256, retry=ONCE)
    fetched = download_model(network.url, out, sha256=sha256, retry=ONCE)
    assert (fetched.nbytes, fetched.received) == (len(MODEL), len(MODEL) - 4000)
    assert out.read_bytes() == MODEL


def test_a_connection_that_brings_nothing_is_given_up(network: Network, out: Path) -> None:
    download_model(network.url, out.with_name("another"), retry=QUICK)
    network.asked.clear()
    network.breaks_after = 0
    part_of(out, MODEL[:3000])
    with pytest.raises(ServerUnreachableError):
        download_model(network.url, out, retry=QUICK)
    assert network.asked == [("bytes=3000-", network.etag)]


def test_a_server_without_ranges_is_given_up(network: Network, out: Path) -> None:
    network.without_ranges = True
    with pytest.raises(ServerUnreachableError):
        download_model(network.url, out, retry=QUICK)
    assert len(network.asked) == QUICK.attempts


def test_what_is_here_of_another_model_is_of_no_use(network: Network, out: Path) -> None:
    old = part_of(out, b"the beginning of an older model", "0" * 64)
    network.breaks_after = len(MODEL)
    assert download_model(network.url, out).received == len(MODEL)
    assert network.asked == [("bytes=31-", f'"{"0" * 64}"')]
    assert out.read_bytes() == MODEL
    assert not old.exists()


def test_damage_is_found_and_thrown_away(network: Network, out: Path) -> None:
    network.breaks_after = len(MODEL)
    part_of(out, b"?" * 1000)
    with pytest.raises(WeightsError, match="SHA-256 .* expected, the 5120 bytes received have .*; fetch it again"):
        download_model(network.url, out)
    assert os.listdir(out.parent) == []
    assert download_model(network.url, out).received == len(MODEL)


@pytest.mark.parametrize(("there", "received"), [(MODEL, 0), (b"?" * len(MODEL), len(MODEL))])
def test_all_of_it_may_be_here_already(there: bytes, received: int, network: Network, out: Path) -> None:
    network.breaks_after = len(MODEL)
    part_of(out, there)
    assert download_model(network.url, out, sha256=SHA256).received == received
    assert out.read_bytes() == MODEL


def test_another_range_than_was_asked_for(network: Network, out: Path) -> None:
    network.shifted = True
    part_of(out, MODEL[:1000])
    with pytest.raises(ServerRefusedError, match="bytes from 1000 expected, found others"):
        download_model(network.url, out)


def test_two_processes_do_not_mix_their_bytes(network: Network, out: Path) -> None:
    part = part_of(out, MODEL[:1000])
    with part.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another process is fetching this model; wait until it has finished"):
            download_model(network.url, out)
    assert part.read_bytes() == MODEL[:1000]


def test_the_server_counts_what_was_missing_to_the_phone_that_asked(
    server: RunningServer, workshop: Workshop, out: Path
) -> None:
    model = workshop.base_path.read_bytes()
    part_of(out, model[:1500], workshop.base_sha256)
    fetched = download_model(server.url, out, phone="p1")
    assert (fetched.sha256, fetched.received) == (workshop.base_sha256, len(model) - 1500)
    assert out.read_bytes() == model

    def counted() -> int:
        server.coordinator.ledger.flush()
        return next((entry["model_bytes"] for entry in read_phones(server.state, 1) if entry["phone"] == "p1"), 0)

    until(lambda: counted() == len(model) - 1500, "the bytes in the ledger")


def test_nothing_is_left_when_the_disk_refuses(network: Network, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    network.breaks_after = len(MODEL)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr("phonograd.device_runtime.client.resumable_download.os.fsync", full)
        download_model(network.url, out)
    assert os.listdir(out.parent) == []
