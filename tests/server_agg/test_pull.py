"""A phone fetches links, or the model where that is smaller; what breaks off goes on at the byte that is here."""

import fcntl
import hashlib
import http.server
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from phonograd.android_harness.rounds.base_model import fetch_base_model
from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, StorageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.protocol import LINKS_TYPE
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.server_client import RetryPolicy, current_round, download_model
from phonograd.server_agg.http import model_routes
from phonograd.server_agg.report.document import read_phones, read_report
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.faults import raising
from tests.server_agg.link_rounds import LOSSY, run_round
from tests.server_agg.workshop import RunningServer, Workshop, run_server
from tests.support.waiting import until

WHOLE = "application/octet-stream"


@pytest.fixture
def server(workshop: Workshop, tmp_path: Path) -> Iterator[RunningServer]:
    with run_server(workshop, tmp_path / "state", **LOSSY) as running:
        yield running


@pytest.fixture
def made(server: RunningServer, workshop: Workshop) -> list[Model]:
    """The models of three rounds."""
    return [run_round(server.coordinator, workshop) for _ in range(3)]


@pytest.fixture
def local(workshop: Workshop, tmp_path: Path) -> Path:
    """The exported model, as a phone has it."""
    (tmp_path / "phone").mkdir()
    path = tmp_path / "phone" / "model"
    shutil.copy(workshop.base_path, path)
    return path


def get(http: httpx.Client, model: str, base: str, **headers: str) -> httpx.Response:
    return http.get(f"/v1/models/{model}", params={"base": base}, headers=headers)


def joined_links(server: RunningServer, models: list[Model]) -> bytes:
    return b"".join(server.coordinator.folder.link(str(model.link_sha256)).read_bytes() for model in models)


def test_links_follow_each_other(
    http: httpx.Client, server: RunningServer, made: list[Model], workshop: Workshop
) -> None:
    for first, base in enumerate((workshop.base_sha256, made[0].sha256, made[1].sha256)):
        for last in range(first, 3):
            answer = get(http, made[last].sha256, base)
            assert answer.headers["Content-Type"] == LINKS_TYPE
            assert answer.content == joined_links(server, made[first : last + 1])
            assert answer.headers["ETag"] != f'"{made[last].sha256}"'
    assert answer.headers["ETag"] == f'"{made[2].link_sha256}"'


def test_ranges_and_etags(http: httpx.Client, server: RunningServer, made: list[Model], workshop: Workshop) -> None:
    model, base = made[-1].sha256, workshop.base_sha256
    whole = joined_links(server, made)
    etag = get(http, model, base).headers["ETag"]
    first, second = int(made[0].link_bytes or 0), int(made[1].link_bytes or 0)
    for start, stop in ((0, 1), (first - 1, first + 1), (first, first + second), (5, len(whole)), (first + 7, 10**9)):
        part = get(http, model, base, Range=f"bytes={start}-{stop - 1}", **{"If-Range": etag})
        assert (part.status_code, part.content) == (206, whole[start:stop])
        assert part.headers["Content-Range"] == f"bytes {start}-{min(stop, len(whole)) - 1}/{len(whole)}"
    assert get(http, model, base, Range="bytes=-9").content == whole[-9:]
    assert get(http, model, base, Range=f"bytes={len(whole)}-").status_code == 416
    for ignored in ("bytes=5-2", "lines=1-2"):
        assert get(http, model, base, Range=ignored).content == whole
    assert get(http, model, base, Range="bytes=3-", **{"If-Range": f'"{model}"'}).content == whole
    for known in (etag, f'"{model}"'):
        assert get(http, model, base, **{"If-None-Match": known}).status_code == 304
    head = http.head(f"/v1/models/{model}", params={"base": base})
    assert (head.headers["Content-Length"], head.content) == (str(len(whole)), b"")


def test_the_whole_model_where_there_are_no_links(
    http: httpx.Client, server: RunningServer, made: list[Model], workshop: Workshop
) -> None:
    model = server.coordinator.folder.model(made[-1].sha256).read_bytes()
    for base in ("0" * 64, made[-1].sha256, "nonsense", ""):
        answer = get(http, made[-1].sha256, base)
        assert (answer.headers["Content-Type"], answer.headers["ETag"]) == (WHOLE, f'"{made[-1].sha256}"')
        assert answer.content == model
    back = get(http, workshop.base_sha256, made[-1].sha256)  # no link leads back
    assert (back.headers["Content-Type"], back.content) == (WHOLE, workshop.base_path.read_bytes())
    server.coordinator.folder.link(str(made[1].link_sha256)).unlink()
    assert get(http, made[-1].sha256, workshop.base_sha256).content == model
    assert get(http, "1" * 64, workshop.base_sha256).status_code == 404


def test_the_whole_model_where_links_would_be_larger(
    http: httpx.Client, server: RunningServer, workshop: Workshop
) -> None:
    made = [run_round(server.coordinator, workshop) for _ in range(8)]
    assert get(http, made[-1].sha256, workshop.base_sha256).headers["Content-Type"] == WHOLE
    assert get(http, made[-1].sha256, made[-2].sha256).headers["Content-Type"] == LINKS_TYPE


def test_a_rolled_back_model_has_no_links(http: httpx.Client, server: RunningServer, made: list[Model]) -> None:
    server.coordinator.rollback(1)
    assert get(http, made[-1].sha256, made[0].sha256).headers["Content-Type"] == WHOLE


@pytest.mark.parametrize("behind", [1, 3])
def test_pull_brings_a_model_up_to_date(
    behind: int, server: RunningServer, made: list[Model], workshop: Workshop, local: Path
) -> None:
    if behind < 3:
        shutil.copy(server.coordinator.folder.model(made[2 - behind].sha256), local)
    pulled = pull_model(server.url, local, phone="p1")
    assert (pulled.sha256, pulled.links, pulled.changed) == (made[-1].sha256, behind, True)
    assert pulled.received == sum(int(model.link_bytes or 0) for model in made[3 - behind :])
    assert sha256_of_file(local) == made[-1].sha256
    assert os.listdir(local.parent) == [local.name]
    again = pull_model(server.url, local)
    assert (again.changed, again.received) == (False, 0)

    def counted_bytes() -> int:
        server.coordinator.ledger.flush()
        return next((entry["sent_link_bytes"] for entry in read_phones(server.state, 4) if entry["phone"] == "p1"), 0)

    until(lambda: counted_bytes() == pulled.received, "the bytes in the ledger")


def test_pull_from_another_file_or_nothing(server: RunningServer, made: list[Model], local: Path) -> None:
    out = local.with_name("out")
    pulled = pull_model(server.url, out, local, sha256=made[1].sha256)
    assert (pulled.links, sha256_of_file(out)) == (2, made[1].sha256)
    copied = pull_model(server.url, local.with_name("copy"), out, sha256=made[1].sha256)
    assert (copied.received, copied.changed) == (0, True)
    assert local.with_name("copy").read_bytes() == out.read_bytes()
    whole = pull_model(server.url, local.with_name("new"))
    assert (whole.links, whole.received, whole.sha256) == (0, made[-1].bytes, made[-1].sha256)


def test_a_phones_round_begins_with_a_pull(server: RunningServer, made: list[Model], tmp_path: Path) -> None:
    """The phone starts from the artifacts' weights, later from the last model used; a damaged copy is fetched again."""
    artifacts, cache = server.workshop.artifacts, tmp_path / "cache"
    sizes = [int(model.link_bytes or 0) for model in made]
    first = fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p1")
    assert (first.sha256, first.downloaded_bytes) == (made[-1].sha256, sum(sizes))
    assert fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p1").downloaded_bytes == 0
    other = fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p2")
    assert other.downloaded_bytes == sum(sizes)  # on the same machine, and counted like a phone elsewhere
    first.path.write_bytes(b"damaged")
    again = fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p1")
    assert (again.downloaded_bytes, sha256_of_file(again.path)) == (sum(sizes), made[-1].sha256)
    newest = run_round(server.coordinator, server.workshop)
    second = fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p1")
    assert (second.sha256, second.downloaded_bytes) == (newest.sha256, newest.link_bytes)
    kept = {path.name for path in second.path.parent.iterdir()}
    assert kept == {f"{made[-1].sha256}.safetensors", f"{newest.sha256}.safetensors"}


def test_a_phone_fetches_no_larger_model_than_its_own(
    server: RunningServer, made: list[Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = server.workshop.artifacts
    allowed = int(made[-1].link_bytes or 0) - 1 - server.workshop.base_path.stat().st_size
    monkeypatch.setattr("phonograd.android_harness.rounds.base_model.HEADER_BYTES", allowed)
    with pytest.raises(ServerRefusedError, match="a model of at most .* bytes expected, found .*; give the artifacts"):
        fetch_base_model(server.url, artifacts, current_round(server.url), tmp_path / "cache")


def test_models_that_nobody_uses_are_deleted(server: RunningServer, made: list[Model], tmp_path: Path) -> None:
    """The models of servers and phones that never come again go, and nothing else in the folder."""
    artifacts, cache = server.workshop.artifacts, tmp_path / "cache"
    gone = cache / "http%3A%2F%2Fgone" / "phone-p1"
    gone.mkdir(parents=True)
    kept = [gone / "0b.safetensors", cache / "mine.safetensors", gone / "mine.txt"]
    for path in (gone / "0a.safetensors", *kept):
        path.write_bytes(b"a model")
        days = 29 if path == kept[0] else 31
        os.utime(path, (time.time() - days * 24 * 3600, path.stat().st_mtime))
    fetched = fetch_base_model(server.url, artifacts, current_round(server.url), cache, "p1")
    assert {path for path in cache.rglob("*") if path.is_file()} == {fetched.path, *kept}


def test_pull_falls_back_to_the_whole_model(server: RunningServer, made: list[Model], local: Path) -> None:
    local.write_bytes(local.read_bytes()[:-4] + b"\0\0\0\0")  # a model that the server has never had
    pulled = pull_model(server.url, local)
    assert (pulled.links, pulled.received, sha256_of_file(local)) == (0, made[-1].bytes, made[-1].sha256)


def hash_unchecked(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def test_a_damaged_link_at_the_server_costs_the_whole_model(
    server: RunningServer, made: list[Model], local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = server.coordinator.folder.link(str(made[1].link_sha256))
    data = link.read_bytes()
    link.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    monkeypatch.setattr(model_routes, "sha256_of_links", hash_unchecked)
    pulled = pull_model(server.url, local)
    assert (pulled.links, sha256_of_file(local)) == (0, made[-1].sha256)
    assert pulled.received == sum(int(model.link_bytes or 0) for model in made) + made[-1].bytes
    assert os.listdir(local.parent) == [local.name]


def test_a_pull_that_broke_off_goes_on(
    server: RunningServer, made: list[Model], workshop: Workshop, local: Path
) -> None:
    links = joined_links(server, made)
    here = links[: len(links) // 2]
    local.with_name(f".model.{hashlib.sha256(links).hexdigest()}.part").write_bytes(here)
    pulled = pull_model(server.url, local)
    assert (pulled.links, pulled.received, sha256_of_file(local)) == (3, len(links) - len(here), made[-1].sha256)
    assert os.listdir(local.parent) == [local.name]


def test_a_full_disk_leaves_the_model_and_what_was_fetched(
    server: RunningServer, made: list[Model], workshop: Workshop, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = raising(StorageError("out: cannot write: No space left on device"))
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space left"):
        patched.setattr("phonograd.device_runtime.client.pull.pull_links", full)  # the links are here, the model is not
        pull_model(server.url, local)
    assert sha256_of_file(local) == workshop.base_sha256
    pulled = pull_model(server.url, local)
    assert (pulled.links, pulled.received) == (3, 0)


def test_a_model_that_the_server_has_not(server: RunningServer, local: Path) -> None:
    before = local.read_bytes()
    with pytest.raises(ServerRefusedError, match="is not here, or no longer"):
        pull_model(server.url, local, sha256="1" * 64)
    assert local.read_bytes() == before


def test_the_ledger_tells_links_from_models_by_their_codec(
    http: httpx.Client, server: RunningServer, made: list[Model], workshop: Workshop
) -> None:
    got = get(http, made[2].sha256, workshop.base_sha256)
    again = get(http, made[2].sha256, made[1].sha256, **{"If-None-Match": f'"{made[2].sha256}"'})
    whole = get(http, made[2].sha256, "f" * 64)
    assert [answer.status_code for answer in (got, again, whole)] == [200, 304, 200]
    until(lambda: not server.requests, "the end of all requests")
    server.coordinator.ledger.flush()
    entry = read_report(server.state)["rounds"][-1]
    assert entry["sent_links"] == {"top-rows": {"requests": 2, "bytes": len(got.content)}}
    assert entry["model_bytes"] == len(whole.content)


def test_instead_of_a_damaged_link_the_model_is_sent(
    http: httpx.Client, server: RunningServer, made: list[Model]
) -> None:
    """Even if the link was sent before it was damaged."""
    assert get(http, made[2].sha256, made[1].sha256).headers["Content-Type"] == LINKS_TYPE
    path = server.coordinator.folder.link(str(made[2].link_sha256))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, ns=(0, 0))
    answer = get(http, made[2].sha256, made[1].sha256)
    assert (answer.headers["Content-Type"], len(answer.content)) == (WHOLE, made[2].bytes)


def test_links_that_changed_on_their_way_cost_the_whole_model(
    server: RunningServer, made: list[Model], local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_routes, "sha256_of_links", lambda paths: "0" * 64)  # not what is sent
    pulled = pull_model(server.url, local)
    assert (pulled.links, sha256_of_file(local)) == (0, made[-1].sha256)
    assert os.listdir(local.parent) == [local.name]


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

    def counted_bytes() -> int:
        server.coordinator.ledger.flush()
        return next((entry["model_bytes"] for entry in read_phones(server.state, 1) if entry["phone"] == "p1"), 0)

    until(lambda: counted_bytes() == len(model) - 1500, "the bytes in the ledger")


def test_nothing_is_left_when_the_disk_refuses(network: Network, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    network.breaks_after = len(MODEL)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr("phonograd.device_runtime.client.resumable_download.os.fsync", full)
        download_model(network.url, out)
    assert os.listdir(out.parent) == []
