"""Bodies, headers and URLs of people who mean harm: refused in words, the round and the server's memory as before.

PHONOGRAD_HOSTILE: how many requests each test at random makes, in place of its own number.
"""

import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.app import OPERATIONS
from phonograd.server_agg.report.document import BYTES
from phonograd.server_agg.security.guard import Roles
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from tests.server_agg.faults import adds_up
from tests.server_agg.hostile_updates import hostile_files
from tests.server_agg.http_uploads import head_of, headers_of
from tests.server_agg.tus_phone import BODY, TUS, incoming
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server, small_workshop
from tests.support.waiting import PATIENCE_SECONDS

HOSTILE = int(os.environ.get("PHONOGRAD_HOSTILE", "0"))
MIB = 1 << 20
# What memory may grow by while bad updates are read: allocators keep some.
FLAT_BYTES = 48 * MIB


@dataclass
class Victim:
    """A server of this process, and sound updates to it by codec."""

    http: httpx.Client
    server: RunningServer
    sound: dict[str, bytes]
    phones: int = 0

    def post(self, data: bytes) -> httpx.Response:
        """A whole update of a phone that nobody has seen before."""
        self.phones += 1
        return self.http.post("/v1/uploads", content=data, headers=headers_of(data, f"phone{self.phones}"))

    @property
    def accepted(self) -> int:
        return int(self.server.coordinator.current.accepted or 0)


def memory() -> dict[str, int]:
    """Bytes of this process: resident now (VmRSS), and at most so far (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith(("VmRSS", "VmHWM"))}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp("hostile")
    return small_workshop(folder)


@pytest.fixture(scope="module")
def victim(workshop: Workshop) -> Iterator[Victim]:
    """Afterwards a sound update of each codec counts, and every byte is in its place."""
    with (
        run_server(workshop, workshop.folder / "state", clients_per_round=10**6) as server,
        client_of(server.url) as http,
    ):
        victim = Victim(http, server, {codec: workshop.update(1, codec=codec).read_bytes() for codec in CODECS})
        yield victim
        accepted = victim.accepted
        assert [victim.post(sound).status_code for sound in victim.sound.values()] == [201] * len(CODECS)
        assert victim.accepted == accepted + len(CODECS)
        for entry in http.get("/v1/report").json()["rounds"]:
            assert adds_up(entry), entry
            assert min(entry[name] for name in BYTES) >= 0, entry


def in_words(response: httpx.Response) -> bool:
    """Whether an answer is no error, or one of the client's, explained."""
    if response.status_code < 400:
        return True
    if response.headers["content-type"] != "application/problem+json" or response.status_code >= 500:
        return False
    if response.request.method == "HEAD":
        return True
    problem = response.json()
    return (
        problem["status"] == response.status_code and problem["detail"].isprintable() and len(problem["detail"]) < 1200
    )


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory")
def test_hostile_tensor_files(victim: Victim) -> None:
    """Sent four at a time: every one a 4xx in words, nothing left of it, memory flat."""
    cases = list(hostile_files(victim.sound["full-f32"]))
    assert len(cases) > 80
    victim.post(cases[0][1])
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of the tests before
    before, accepted = memory(), victim.accepted
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda case: victim.post(case[1]), cases))
    wrong = [
        (what, answer.status_code, answer.text[:200])
        for (what, _), answer in zip(cases, answers, strict=True)
        if answer.status_code not in (400, 409, 413, 422) or not in_words(answer)
    ]
    assert wrong == []
    after = memory()
    assert after["VmRSS"] - before["VmRSS"] < FLAT_BYTES
    assert after["VmHWM"] - before["VmHWM"] < FLAT_BYTES
    assert victim.accepted == accepted
    assert incoming(victim.server) == []
    assert len(list((victim.server.state / "updates").iterdir())) <= accepted


def test_a_large_body_is_refused_before_it_comes(victim: Victim) -> None:
    limit = 2 * victim.server.workshop.base_path.stat().st_size + HEADER_CAP_BYTES
    headers = headers_of(b"", "large")
    fits = victim.http.post("/v1/uploads", headers={**TUS, **headers, "Upload-Length": str(limit)})
    assert fits.status_code == 201
    assert victim.http.delete(fits.headers["Location"], headers={**TUS, "Phonograd-Phone": "large"}).is_success
    for size in (limit + 1, 10**18 - 1):
        announced = victim.http.post("/v1/uploads", headers={**TUS, **headers, "Upload-Length": str(size)})
        assert (announced.status_code, in_words(announced)) == (413, True)
        with socket.create_connection(("127.0.0.1", victim.server.port)) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            length = {"Content-Length": str(size), "Upload-Length": str(size)}
            connection.sendall(head_of(b"", "large", **length))  # and not a byte of the body
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@settings(max_examples=HOSTILE or 25)
@given(st.data())
def test_bytes_changed_at_random(victim: Victim, data: st.DataObject) -> None:
    body = bytearray(victim.sound[data.draw(st.sampled_from(list(CODECS)))])
    head = int.from_bytes(body[:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, head if data.draw(st.booleans()) else len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    answer = victim.post(bytes(body))
    assert answer.status_code in (201, 400, 409, 422)
    assert in_words(answer)


# Headers and URLs

PREFIXES = [b"", b"Bearer ", b"Basic ", b"bytes=", b"bytes=5-", b"sha1 ", b"sha-256=:", b"phone ", b"round 1,sha256 "]
WORDS = [b"", b"0", b"-1", b"1", b"9" * 18, b"9" * 19, b"9" * 5000, b"1e9", b"\xc2\xb2", b"*", b",", b"=", b" ", b"%00",
         b"0-", b"-0", b"0-1,3-4", b"999999999-", b"PATCH", b"HEAD", b"DELETE", b"phone", BODY.encode()]  # fmt: skip
VALUE = st.one_of(
    st.binary(max_size=40).map(lambda raw: bytes(byte for byte in raw if byte >= 0x20 and byte != 0x7F)),
    st.sampled_from(WORDS),
    st.integers(0, 9000).map(lambda number: str(number).encode()),
)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Upload-Metadata", "Upload-Length", "Upload-Offset", "Upload-Checksum", "Content-Digest", "Authorization",
         "Phonograd-Phone", "Range", "If-None-Match", "If-Range", "X-HTTP-Method-Override", "Content-Type", "Accept",
         "Cookie", "Origin"]
    ),
    st.builds(lambda prefix, value: (prefix + value).strip(b" "), st.sampled_from(PREFIXES), VALUE),
)  # fmt: skip
IDENTIFIER = st.one_of(
    st.text(max_size=20).map(lambda text: quote(text.encode(errors="replace"), safe="")),
    st.sampled_from(["0" * 32, "0" * 64, "%2e%2e", "%00", "x" * 500, "-1", "9" * 1000, "%ff", "%f0%9f%92%a3"]),
)
PATH = st.one_of(
    st.sampled_from(
        ["/v1/round", "/v1/model", "/v1/models", "/v1/uploads", "/v1/uploads", "/v1/report", "/v1/report.csv",
         "/v1/rollback", "/v1/discard", "/v1/phones", "/v1/audit", "/healthz", "/metrics", "/openapi.json", "/"]
    ),
    st.builds(str.__add__, st.sampled_from(
        ["/v1/uploads/", "/v1/models/", "/v1/phones/", "/v1/report/rounds/", "/v1/rollback?round=",
         "/v1/discard?round=", "/v1/audit?limit=", "/v1/audit?before=", "/rounds/", "/"]
    ), IDENTIFIER),
)  # fmt: skip
METHOD = st.sampled_from(["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"])


@pytest.fixture(scope="module")
def guarded(workshop: Workshop) -> Iterator[tuple[httpx.Client, str]]:
    """A server that asks for tokens, and an administrator's."""
    state = workshop.folder / "guarded"
    security = SecuritySettings(auth="tokens", requests_per_second=1e6, burst=10**6)
    with run_server(workshop, state, security=security) as server:
        token = PhoneRegistry(server.coordinator.ledger).add("admin", "admin", "1h", "test").token
        with client_of(server.url) as http:
            yield http, token


@settings(max_examples=HOSTILE or 50)
@given(METHOD, PATH, HEADERS, st.binary(max_size=20), st.booleans(), st.booleans())
def test_headers_and_urls_at_random(
    guarded: tuple[httpx.Client, str], method: str, path: str, headers: dict[str, bytes], body: bytes,
    admin: bool, speaks_tus: bool,
) -> None:  # fmt: skip
    http, token = guarded
    more = (TUS if speaks_tus else {}) | ({"Authorization": f"Bearer {token}"} if admin else {})
    answer = http.request(method, path, headers={**headers, **more}, content=body)
    assert answer.status_code < 500
    assert in_words(answer)
    assert admin or answer.status_code >= 400 or Roles(OPERATIONS).access_of(path.partition("?")[0]) == "open"
