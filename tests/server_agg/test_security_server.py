"""A whole server with tokens and TLS on loopback, and clients of it."""

import asyncio
import contextlib
import dataclasses
import logging
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from msgspec import structs

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client import server_client as client
from phonograd.device_runtime.client.server_client import Connection
from phonograd.server_agg.http import wire
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.security.tls import TlsError, tls_files
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.audit import AuditLog
from tests.server_agg.checked_answers import Checked
from tests.server_agg.conftest import Certificates
from tests.server_agg.http_uploads import check_problem, head_of
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.command_line import Run, phono
from tests.support.waiting import PATIENCE_SECONDS, until

__all__ = ["phono"]


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A server that asks for tokens, and an administrator's and two phones' connections to it."""

    server: RunningServer
    boss: Connection
    phones: tuple[Connection, Connection]

    @property
    def http(self) -> httpx.Client:
        return client_of(self.server.url, {"Authorization": f"Bearer {self.boss.token}"})


@pytest.fixture
def guarded(workshop: Workshop, tmp_path: Path) -> Iterator[Guarded]:
    with run_server(workshop, tmp_path / "state", security=SecuritySettings(auth="tokens")) as server:
        registry = PhoneRegistry(server.coordinator.ledger)
        boss, one, two = (
            Connection(server.url, registry.add(name, role, "90d", "me").token)
            for name, role in (("boss", "admin"), ("phone1", "phone"), ("phone2", "phone"))
        )
        yield Guarded(server, boss, (one, two))


def test_a_command_revokes(guarded: Guarded, phono: Run) -> None:
    """The command works on the state folder while the server runs, and the very next request is refused."""
    one, two = guarded.phones
    assert client.current_round(one).round == 1
    assert phono("tokens", "revoke", "phone1", "--state", guarded.server.state).code == 0
    with pytest.raises(
        ServerRefusedError, match=r"401 Unauthorized\): .* the token was revoked.*; give it as `token`$"
    ):
        client.current_round(one)
    assert client.current_round(two).round == 1
    entries = AuditLog(guarded.server.coordinator.ledger).entries()
    assert [(entry.action, entry.subject, entry.outcome) for entry in entries[:2]] == [
        ("GET", "/v1/round", "refused"),
        ("phones revoke", "phone1", "done"),
    ]
    assert entries[1].actor.startswith("operator:")


def test_administrators_do_it_over_http(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    boss, url = guarded.boss, guarded.server.url
    issued = client.ask(boss, "POST", "/v1/phones", {"name": "phone3"}, 201)
    assert (issued["name"], issued["role"]) == ("phone3", "phone")
    third = Connection(url, issued["token"])
    assert client.current_round(third).round == 1
    fresh = client.ask(boss, "POST", "/v1/phones/phone3/tokens", {"overlap": "0s"}, 201)
    with pytest.raises(ServerRefusedError, match="the token has expired"):
        client.current_round(third)
    assert client.current_round(Connection(url, fresh["token"])).round == 1
    listed = client.ask(boss, "GET", "/v1/phones")["phones"]
    assert [phone["name"] for phone in listed] == ["boss", "phone1", "phone2", "phone3"]
    assert len(listed[3]["tokens"]) == 2
    assert client.ask(boss, "DELETE", "/v1/phones/phone3") == {"name": "phone3", "tokens_revoked": 2}
    entries = client.ask(boss, "GET", "/v1/audit?limit=3")["entries"]
    assert [(entry["actor"], entry["action"]) for entry in entries] == [
        ("boss", "phones revoke"),
        ("address:127.0.0.1", "GET"),
        ("boss", "phones rotate"),
    ]
    older = client.ask(boss, "GET", f"/v1/audit?before={entries[2]['id']}")["entries"]
    assert older[0]["action"] == "phones add"
    for secret in (issued["token"], fresh["token"], boss.token):
        assert secret is not None
        assert secret not in str(listed)
        assert secret.split("_")[2] not in caplog.text


def test_administrators_can_be_wrong(guarded: Guarded) -> None:
    """One of each class; the registry and documents have tests of all. A token that is made is not kept on its way."""
    with guarded.http as http:
        checked = Checked(http)
        for method, url, body, status, detail in (
            ("POST", "/v1/phones", b"", 400, "the body: name: missing; see NewPhone in /openapi.json"),
            ("POST", "/v1/phones", b"[" * 4000, 400, "the body: not JSON"),
            ("POST", "/v1/phones", b'{"name": "\\ud800"}', 400, "1 to 64 of"),
            ("POST", "/v1/phones", b'{"name": "x", "role": "root"}', 400, "role: expected 'admin' or 'phone', found"),
            ("POST", "/v1/phones", b'{"name": "x", "expires": "1y"}', 400, "expires: a number and s, m, h or d"),
            ("POST", "/v1/phones", b'{"name": "phone1"}', 409, "phone phone1: a name that is free expected"),
            ("POST", "/v1/phones", b" " * 5000, 413, "at most 4096 bytes"),
            ("POST", "/v1/phones/nobody/tokens", b"{}", 404, "phone 'nobody': an enrolled phone expected"),
            ("DELETE", "/v1/phones/%0anobody", b"", 404, "an enrolled phone expected"),
            ("GET", "/v1/audit?limit=many", b"", 400, "?limit= a whole number of at most 9 digits expected, found 'm"),
            ("GET", "/v1/audit?before=" + "9" * 40, b"", 400, "?before= a whole number of at most 9 digits expected"),
        ):
            path = re.sub("/v1/phones/[^/]+", "/v1/phones/{name}", url.partition("?")[0])
            check_problem(checked.ask(method, url, path, content=body), status, detail)
        assert len(checked.ask("GET", "/v1/phones").json()["phones"]) == 3
        made = checked.ask("POST", "/v1/phones", json={"name": "phone3"})
        assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
        one = "/v1/phones/phone3"
        assert checked.ask("POST", f"{one}/tokens", "/v1/phones/{name}/tokens").status_code == 201
        assert checked.ask("DELETE", one, "/v1/phones/{name}").status_code == 200
        assert checked.ask("GET", "/v1/audit?limit=5").json()["entries"]
        assert checked.ask("GET", "/").status_code == 200


def test_nobody_makes_tokens_where_none_are_asked_for(workshop: Workshop, tmp_path: Path) -> None:
    with run_server(workshop, tmp_path / "state", security=SecuritySettings(auth="none")) as server:
        assert server.admin_url == server.url
        assert client.report(server.url)["rounds"]
        for line in ("GET /v1/phones", "POST /v1/phones", "DELETE /v1/phones/x", "GET /v1/audit"):
            with pytest.raises(ServerRefusedError, match=r"403 Forbidden\): this server asks for no tokens; use"):
                client.ask(server.url, *line.split())


def test_a_round_over_tls(
    workshop: Workshop, tmp_path: Path, certificates: Certificates, tls: SecuritySettings
) -> None:
    with run_server(workshop, tmp_path / "state", security=structs.replace(tls, auth="tokens")) as server:
        assert server.url.startswith("https://127.0.0.1:")
        token = PhoneRegistry(server.coordinator.ledger).add("phone1", "phone", "90d", "me").token
        phone = Connection(server.url, token, certificates.authority)
        assert client.current_round(phone).round == 1
        path = tmp_path / "model"
        assert client.download_model(phone, path).sha256 == sha256_of_file(path) == workshop.base_sha256
        assert client.upload_update(phone, workshop.update(1), "phone1").accepted == 1
        with pytest.raises(ServerRefusedError, match=r"refused \(403 Forbidden\): an administrator's token expected"):
            client.report(phone)
        with pytest.raises(
            ServerUnreachableError, match=r"CERTIFICATE_VERIFY_FAILED.*trust a private authority with `ca_cert`"
        ):
            client.current_round(Connection(server.url, token))
        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        with pytest.raises(ServerUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            client.current_round(Connection(server.url, token, other))
        with pytest.raises(ServerUnreachableError):
            client.current_round(server.url.replace("https", "http"))


def test_certificates_that_do_not_do(certificates: Certificates, tmp_path: Path) -> None:
    other = trustme.CA().issue_cert("localhost")
    other_key, garbage, encrypted = tmp_path / "other.pem", tmp_path / "garbage.pem", tmp_path / "encrypted.pem"
    other_key.write_bytes(other.private_key_pem.bytes())
    other_key.chmod(0o600)
    garbage.write_bytes(b"\x30\x82\x01\x00")
    loaded = serialization.load_pem_private_key(other.private_key_pem.bytes(), None)
    encrypted.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    cut = tmp_path / "cut.pem"
    cut.write_bytes(certificates.certificate.read_bytes()[:300] + b"\n-----END CERTIFICATE-----\n")
    for certificate, key, message in (
        (tmp_path / "none.pem", None, "`tls_cert` .*none.pem: cannot be read: No such file"),
        (tmp_path, None, "`tls_cert` .*: cannot be read: Is a directory"),
        (garbage, certificates.key, "`tls_cert` .*garbage.pem: a PEM certificate .* expected, found none; is it in D"),
        (certificates.certificate, tmp_path / "none.pem", "`tls_key` .*none.pem: cannot be read: No such file"),
        (certificates.certificate, garbage, "`tls_key` .*garbage.pem: a PEM private key .* expected, found none"),
        (certificates.certificate, None, "`tls_key` .*certificate.pem: a PEM private key .* expected, found none"),
        (certificates.certificate, other_key, "other.pem: the key of .*certificate.pem expected, found another's"),
        (certificates.certificate, encrypted, "a key without a passphrase expected, found an encrypted one"),
        (cut, certificates.key, r"cut.pem, .*key.pem: damaged \("),
    ):
        with pytest.raises(TlsError, match=message) as raised:
            tls_files(SecuritySettings(tls_cert=certificate, tls_key=key))
        assert raised.value.exit_code == 18


def test_one_file_may_hold_both(certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificates.certificate.read_bytes() + certificates.key.read_bytes())
    both.chmod(0o600)
    assert tls_files(SecuritySettings(tls_cert=both)) == {"ssl_certfile": both, "ssl_keyfile": both}
    assert not caplog.records
    both.chmod(0o644)
    tls_files(SecuritySettings(tls_cert=both))
    assert "other users of this machine can read the private key; chmod 600" in caplog.text


def test_a_server_says_what_is_unsafe(workshop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for security, expected in (
        (SecuritySettings(), ["without TLS", "no phone is enrolled yet"]),
        (SecuritySettings(auth="none"), ["without TLS", "lets ANYONE fetch models"]),
    ):
        settings = ServerSettings(host="0.0.0.0", port=0, security=security)
        coordinator = Coordinator(workshop.artifacts, tmp_path / "state", settings)
        caplog.clear()
        with contextlib.closing(coordinator), contextlib.closing(Listener(settings)) as listener:
            AggregationServer(coordinator, settings, listener)
            warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == len(expected)
        assert all(part in line for part, line in zip(expected, warnings, strict=True))


TOKEN = "pgd_" + "0" * 16 + "_" + "1" * 64


@pytest.mark.parametrize(
    "url", ["http://phones.example", "http://192.0.2.1:8080", "HTTP://phones.example", "http://[2001:db8::1]"]
)
def test_a_token_does_not_leave_the_machine_unencrypted(url: str) -> None:
    with pytest.raises(
        UsageError, match="http:// would send the token unencrypted; use https://, or allow it with `token_over_http`"
    ):
        Connection(url, TOKEN)
    assert Connection(url, TOKEN, token_over_http=True).url == url
    for safe in (url.lower().replace("http", "https"), "http://127.0.0.1:8080", "http://localhost", "http://[::1]:1"):
        assert Connection(safe, TOKEN).token == TOKEN


def test_a_connection_does_not_show_its_token() -> None:
    assert "1111" not in repr(Connection("https://phones.example", TOKEN))
    for wrong in ("", "hunter2\r\nX: y", TOKEN + "\n", TOKEN.upper()):
        with pytest.raises(
            UsageError, match=r"token: pgd_<16 hex digits>_<64 hex digits> expected, found \d+ "
        ) as raised:
            Connection("https://phones.example", wrong)
        assert not re.search("hunter2|1111", str(raised.value))


def test_an_authority_that_is_none(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("nothing")
    for path, message in (
        (garbage, "not a PEM file of certificates"),
        (tmp_path / "none", "cannot be read: No such file"),
    ):
        with pytest.raises(UsageError, match=message):
            client.current_round(Connection("https://127.0.0.1:1", ca_cert=path))


def test_connections_without_a_request_are_closed(
    guarded: Guarded, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent from the start, a head without end, a refused body without end; not an upload that takes its time."""
    monkeypatch.setattr(wire, "HEAD_SECONDS", 0.3)
    refused = b"POST /v1/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    for opening, answered in ((b"", False), (b"GET /v1/round HTTP/1.1\r\nHost: x\r\n", False), (refused, True)):
        with socket.create_connection(("127.0.0.1", guarded.server.port), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(opening)
            if answered:
                assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
            connection.settimeout(0.05)
            until(lambda: is_closed(connection), "the connection's end")
    body = workshop.update(1).read_bytes()
    head = head_of(body, "phone1", Authorization=f"Bearer {guarded.phones[0].token}")
    with socket.create_connection(("127.0.0.1", guarded.server.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head + body[:100])
        time.sleep(1.0)  # past the deadline, three times
        connection.sendall(body[100:])
        assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")


def test_a_handshake_that_says_nothing_ends_as_a_head_does(
    workshop: Workshop, tmp_path: Path, tls: SecuritySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(asyncio.constants, "SSL_HANDSHAKE_TIMEOUT", 1e6)  # asyncio's own: a minute
    with (
        run_server(workshop, tmp_path / "state", security=tls) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as connection,
    ):
        assert connection.recv(1) == b""


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_all_addresses_are_those_of_ipv4_too(workshop: Workshop, tmp_path: Path, address: str) -> None:
    with run_server(workshop, tmp_path / "state", host="::", security=SecuritySettings(auth="tokens")) as server:
        assert httpx.get(f"http://{address}:{server.port}/v1/round", trust_env=False).status_code == 401
        (refusal,) = AuditLog(server.coordinator.ledger).entries(1)
    # As they are written alone: limits of rates, and who is trusted with X-Forwarded-For, are by address.
    assert refusal.actor == {"127.0.0.1": "address:127.0.0.1", "[::1]": "address:::/64"}[address]


def is_closed(connection: socket.socket) -> bool:
    """Send a byte more, and see whether the other end is still there."""
    try:
        connection.sendall(b"x")
        return connection.recv(4096) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True
