"""The guard alone, in front of an application that notes what reaches it: who gets in, how often, and what is said."""

import asyncio
import base64
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.client.protocol import PHONE_NAME
from phonograd.server_agg.app import OPERATIONS
from phonograd.server_agg.http.operations import Access, Operation
from phonograd.server_agg.http.requests import phone_of
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.rate_limits import ConcurrencyLimit, TokenBuckets, address_key
from phonograd.server_agg.security.guard import Guard, Roles
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.audit import AuditEntry, AuditLog
from phonograd.server_agg.storage.ledger import Ledger
from tests.server_agg.faults import raising
from tests.server_agg.http_uploads import check_problem
from tests.support.waiting import PATIENCE_SECONDS

TOKENS = SecuritySettings(auth="tokens")


class Gate:
    """A guard, and behind it an application that answers with whom it sees."""

    def __init__(self, ledger: Ledger, security: SecuritySettings, host: str):
        self.registry = PhoneRegistry(ledger)
        self.audit = AuditLog(ledger)
        self.now = 0.0
        self.let_in: asyncio.Event | None = None
        self.owner = Owner()
        self.guard = Guard(
            self._behind, settings=security, host=host, roles=Roles(OPERATIONS), owner=self.owner,
            registry=self.registry, audit=self.audit,
            pools=ThreadPools(), clock=lambda: self.now,
        )  # fmt: skip

    async def _behind(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if self.let_in is not None:
            await self.let_in.wait()
        principal = request.state.principal
        seen = {"principal": principal and dataclasses.asdict(principal), "phone": phone_of(request)}
        await JSONResponse(seen)(scope, receive, send)

    async def asking(
        self, method: str, path: str, headers: Any = None, address: str = "192.0.2.1", host: str = "127.0.0.1"
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.guard, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", trust_env=False) as client:
            return await client.request(method, path, headers=headers)

    def ask(self, method: str, path: str, headers: Any = None, **places: str) -> httpx.Response:
        return asyncio.run(self.asking(method, path, headers, **places))

    def token(self, name: str, role: str = "phone", expires: str = "90d") -> dict[str, str]:
        return bearer(self.registry.add(name, role, expires, "me").token)

    def refusals(self) -> list[AuditEntry]:
        return [entry for entry in self.audit.entries(1000) if entry.outcome == "refused"]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


MakeGate = Callable[..., Gate]


@pytest.fixture
def make_gate(tmp_path: Path) -> Iterator[MakeGate]:
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield lambda security=TOKENS, host="0.0.0.0", **changes: Gate(
            ledger, structs.replace(security, **changes), host
        )


@pytest.fixture
def gate(make_gate: MakeGate) -> Gate:
    return make_gate()


def test_who_gets_where(gate: Gate) -> None:
    none, phone, admin = {}, gate.token("phone1"), gate.token("boss", "admin")
    for path, expected in (
        ("/healthz", (200, 200, 200)),
        ("/v1/round", (401, 200, 200)),
        ("/v1/models/0123", (401, 200, 200)),
        ("/v1/uploads", (401, 200, 200)),
        ("/v1/report", (401, 403, 200)),
        ("/v1/phones", (401, 403, 200)),
        ("/v1/phones/phone1", (401, 403, 200)),
        ("/v1/phones/phone1/tokens", (401, 403, 200)),
        ("/v1/audit", (401, 403, 200)),
        ("/nobody/thought/of/this", (404, 404, 404)),
        ("/v1/round/", (401, 200, 200)),
        ("/v1/report//", (401, 403, 200)),
        ("//v1/round", (404, 404, 404)),
        ("/v1/models/../phones", (401, 403, 200)),
        ("/healthz%2f..%2fv1%2fphones", (404, 404, 404)),
        ("/HEALTHZ", (404, 404, 404)),
    ):
        for method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "BREW"):
            found = tuple(gate.ask(method, path, headers).status_code for headers in (none, phone, admin))
            assert found == expected, (method, path)


# All paths that not only administrators may use; a new one is written down here as well as at its operation.
OPEN = {"/healthz", "/livez", "/openapi.json", "/static/{name}", "/admin"}
FOR_PHONES = {"/v1/round", "/v1/model", "/v1/models/{sha256}", "/v1/uploads", "/v1/uploads/{id}"} | {
    f"/v1/masked/{stage}" for stage in ("keys", "draws", "shares", "members", "list", "agreement", "answer")
}


def test_each_operation_declares_who_may_use_it() -> None:
    for one in OPERATIONS:
        expected = "open" if one.path in OPEN else "phone" if one.path in FOR_PHONES else "admin"
        assert one.access == expected, (one.method, one.path)


def operation_of(path: str, access: Access) -> Operation:
    return Operation("GET", path, access, "handler", "What it does.", {})


def test_the_strictest_entry_counts() -> None:
    roles = Roles(OPERATIONS)
    assert roles.access_of("/v1/models/abc") == "phone"
    assert roles.access_of("/v1/models/abc/def") is None
    assert roles.access_of("") is None
    accesses: tuple[Access, ...] = ("open", "phone", "admin")
    for first, second in itertools.permutations(accesses, 2):
        for other in ("/v1/{name}", "/v1/{number}"):
            roles = Roles([operation_of("/v1/{name}", first), operation_of(other, second)])
            assert roles.access_of("/v1/7") == ("admin" if "admin" in (first, second) else "phone")


def test_what_is_said_without_a_good_token(gate: Gate) -> None:
    expired = gate.token("phone1", expires="0s")
    revoked = gate.token("phone2")
    gate.registry.revoke("phone2", "me")
    for headers, found in (
        ({}, "none came"),
        (bearer("pgd_" + "0" * 16 + "_" + "0" * 64), "the token is not one of this server's"),
        (expired, "the token has expired"),
        (revoked, "the token was revoked"),
    ):
        answer = gate.ask("GET", "/v1/round", headers)
        check_problem(answer, 401, f"a token expected in Authorization: Bearer, {found}; the operator makes one")
        challenge = answer.headers["www-authenticate"]
        assert challenge.startswith('Bearer realm="phonograd"')
        assert ('error="invalid_token"' in challenge) == bool(headers)
    assert [(entry.actor, entry.action, entry.subject) for entry in gate.refusals()] == [
        ("address:192.0.2.1", "GET", "/v1/round")
    ] * 4
    details = [entry.detail for entry in reversed(gate.refusals())]
    assert "(phone" not in details[1]
    assert details[2].endswith("(phone phone1)")
    assert details[3].endswith("(phone phone2)")


def test_the_command_that_is_advised_works(gate: Gate) -> None:
    """Phones are enrolled with another token, or are no longer."""
    add, rotate, revoke = gate.registry.add, gate.registry.rotate, gate.registry.revoke
    rotated, revoked, again = (gate.token(name) for name in ("rotated", "revoked", "again"))
    expired = gate.token("expired", expires="0s")
    rotate("rotated", "90d", "0s", "me")
    for name in ("revoked", "again"):
        revoke(name, "me")
    add("again", "phone", "90d", "me")
    for headers, advised in (
        (rotated, "rotate rotated"),
        (expired, "rotate expired"),
        (revoked, "add revoked"),
        (again, "rotate again"),
    ):
        assert gate.ask("GET", "/v1/round", headers).json()["detail"].endswith(f": phonograd tokens {advised}")
        command, name = advised.split()
        made = add(name, "phone", "90d", "me") if command == "add" else rotate(name, "90d", "1d", "me")
        assert gate.ask("GET", "/v1/round", bearer(made.token)).status_code == 200


def test_a_browser_is_asked_for_a_password(gate: Gate) -> None:
    answer = gate.ask("GET", "/v1/report", {"Accept": "text/html"})
    assert answer.headers["www-authenticate"].startswith('Basic realm="phonograd"')
    token = gate.token("boss", "admin")["Authorization"].removeprefix("Bearer ")
    basic = {"Authorization": "Basic " + base64.b64encode(f"anyone:{token}".encode()).decode()}
    assert gate.ask("GET", "/v1/report", basic).json()["principal"] == {"name": "boss", "role": "admin"}


def test_a_phone_speaks_for_itself_alone(gate: Gate) -> None:
    phone, admin = gate.token("phone1"), gate.token("boss", "admin")
    assert gate.ask("GET", "/v1/round", phone).json()["phone"] == "phone1"
    assert gate.ask("GET", "/v1/round", phone | {"Phonograd-Phone": "phone1"}).json()["phone"] == "phone1"
    for name in ("phone2", "PHONE1", "", "boss", "phone1, phone2"):
        check_problem(
            gate.ask("POST", "/v1/uploads", phone | {"Phonograd-Phone": name}), 403, "Phonograd-Phone: phone1, whose"
        )
    twice = [*phone.items(), ("Phonograd-Phone", "phone1"), ("Phonograd-Phone", "phone2")]
    assert gate.ask("POST", "/v1/uploads", twice).status_code == 403
    assert gate.refusals()[0].actor == "phone1"
    assert gate.ask("POST", "/v1/uploads", admin).json()["phone"] == "boss"
    assert gate.ask("POST", "/v1/uploads", admin | {"Phonograd-Phone": "phone1"}).status_code == 403


def test_headers_and_urls_are_bounded(make_gate: MakeGate) -> None:
    gate = make_gate(max_header_bytes=1000, max_target_bytes=100)
    phone = gate.token("phone1")
    assert gate.ask("GET", "/v1/round", phone | {"X": "x" * 600}).status_code == 200
    check_problem(gate.ask("GET", "/v1/round", phone | {"X": "x" * 900}), 431, "headers of at most 1000 bytes expected")
    assert gate.ask("GET", "/v1/round?" + "x" * 90, phone).status_code == 200
    check_problem(
        gate.ask("GET", "/v1/round?" + "x" * 91, phone), 414, "a URL of at most 100 bytes expected, found 101"
    )
    check_problem(gate.ask("GET", "/" + "x" * 5000, phone), 414, "a URL of at most 100 bytes expected, found 5001")


def test_each_phone_has_a_rate(make_gate: MakeGate) -> None:
    gate = make_gate(requests_per_second=2.0, burst=3)
    one, two = gate.token("phone1"), gate.token("phone2")
    assert [gate.ask("GET", "/v1/round", one).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    answer = gate.ask("GET", "/v1/round", one)
    check_problem(answer, 429, "at most 2 requests a second, 3 at once expected, found more")
    assert answer.headers["retry-after"] == "1"
    assert gate.ask("GET", "/v1/round", two).status_code == 200
    gate.now += 0.5
    assert [gate.ask("GET", "/v1/round", one).status_code for _ in range(2)] == [200, 429]
    gate.now += 1000
    assert [gate.ask("GET", "/v1/round", one).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_guessing_has_a_rate_by_address(make_gate: MakeGate) -> None:
    gate = make_gate(requests_per_second=0.1, burst=3)
    phone = gate.token("phone1")
    guesses = [bearer(f"pgd_{'0' * 16}_{number:064x}") for number in range(5)]
    assert [gate.ask("GET", "/v1/round", guess).status_code for guess in guesses] == [401, 401, 401, 429, 429]
    assert gate.ask("GET", "/v1/round", guesses[0]).headers["retry-after"] == "10"
    assert gate.ask("GET", "/healthz").status_code == 429
    assert gate.ask("GET", "/v1/round", phone).status_code == 200  # a good token behind the same address is let in
    assert gate.ask("GET", "/v1/round", guesses[0], address="192.0.2.2").status_code == 401


def test_open_requests_are_bounded_by_phone(make_gate: MakeGate) -> None:
    gate = make_gate(concurrent_per_phone=2)
    one, two = gate.token("phone1"), gate.token("phone2")

    async def scene() -> tuple[list[int], list[int], int, int]:
        gate.let_in = asyncio.Event()
        held = [asyncio.create_task(gate.asking("GET", "/v1/round", one)) for _ in range(3)]
        done, _ = await asyncio.wait(held, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        other = asyncio.create_task(gate.asking("GET", "/v1/round", two))
        gate.let_in.set()
        answers = await asyncio.gather(*held, other)
        after = await gate.asking("GET", "/v1/round", one)
        refused = [task.result().status_code for task in done]
        return refused, sorted(answer.status_code for answer in answers), after.status_code, len(gate.guard._open)

    assert asyncio.run(scene()) == ([429], [200, 200, 200, 429], 200, 0)


def test_buckets_are_bounded() -> None:
    now = [0.0]
    buckets = TokenBuckets(1.0, 2, max_keys=100, clock=lambda: now[0])
    assert [buckets.take("first") for _ in range(3)] == [0.0, 0.0, 1.0]
    for number in range(99):
        buckets.take(f"address:{number}")
    assert len(buckets) == 100
    assert buckets.take("first") == 1.0  # still known, and now the one used last
    for number in range(99):
        buckets.take(f"address:{1000 + number}")
    assert len(buckets) == 100
    assert buckets.take("first") == 1.0
    for number in range(100_000):
        buckets.take(f"address:{number}")
    assert len(buckets) == 100
    assert buckets.take("first") == 0.0


@given(st.floats(0.1, 100), st.integers(1, 50), st.lists(st.floats(0, 10), max_size=60))
def test_no_bucket_gives_more_than_it_says(per_second: float, burst: int, pauses: list[float]) -> None:
    now = [0.0]
    buckets = TokenBuckets(per_second, burst, 10, lambda: now[0])
    taken = 0
    for pause in pauses:
        now[0] += pause
        wait = buckets.take("key")
        taken += wait == 0.0
        assert taken <= burst + per_second * now[0] + 1e-6
        if wait:
            now[0] += wait + 1e-9
            assert buckets.take("key") <= 1e-6
            taken += 1


def test_places_are_given_back() -> None:
    places = ConcurrencyLimit(2)
    assert [places.acquire(key) for key in "aaab"] == [True, True, False, True]
    places.release("a")
    assert places.acquire("a")
    for key in "aab":
        places.release(key)
    assert len(places) == 0


def test_an_ipv6_client_is_its_network() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:1") == "2001:db8::/64"
    assert address_key("192.0.2.1") == "192.0.2.1"
    assert address_key("x" * 1000) == "x" * 64


def test_loopback_asks_phones_for_nothing(make_gate: MakeGate) -> None:
    gate = make_gate(SecuritySettings(burst=2), host="127.0.0.1")
    named = {"Phonograd-Phone": "phone9"}
    for headers in (
        {},
        gate.token("phone1"),
        gate.token("boss", "admin"),
        bearer(gate.owner.token),
        bearer("nonsense"),
    ):
        answer = gate.ask("GET", "/v1/round", headers | named, address="127.0.0.1")
        assert answer.json() == {"principal": None, "phone": "phone9"}


ADMINISTRATORS = sorted({one.path.replace("{number:int}", "7") for one in OPERATIONS if one.access == "admin"})


def test_loopback_asks_administrators_who_they_are(make_gate: MakeGate) -> None:
    """Whatever forwards bytes from elsewhere looks like this machine: an address makes nobody the owner."""
    gate = make_gate(SecuritySettings(), host="127.0.0.1")
    phone, admins = gate.token("phone1"), (gate.token("boss", "admin"), bearer(gate.owner.token))
    strangers = ({}, bearer("nonsense"), {"Cookie": "phonograd_admin_0="}, {"Cookie": "phonograd_admin_80=x"})
    expected = "an administrator's token expected"
    for path in ADMINISTRATORS:
        for method, headers in zip(("GET", "POST", "DELETE", "BREW"), strangers, strict=True):
            check_problem(gate.ask(method, path, headers, address="127.0.0.1"), 401, expected)
        check_problem(gate.ask("GET", path, phone, address="127.0.0.1"), 403, expected)
        for headers in admins:
            principal = gate.ask("GET", path, headers, address="127.0.0.1").json()["principal"]
            assert principal["role"] == "admin", path


def test_the_owner_has_a_name_that_no_phone_can_have(make_gate: MakeGate) -> None:
    gate = make_gate()
    name = gate.ask("GET", "/v1/report", bearer(gate.owner.token)).json()["principal"]["name"]
    assert name.startswith("operator:")
    assert not PHONE_NAME.match(name)
    check_problem(
        gate.ask("POST", "/v1/uploads", bearer(gate.owner.token) | {"Phonograd-Phone": "phone1"}), 403, "whose token"
    )


def test_loopback_is_left_to_this_machine(make_gate: MakeGate) -> None:
    gate = make_gate(SecuritySettings(), host="127.0.0.1")
    for host in ("localhost", "127.0.0.1:8080", "[::1]:8080", "10.0.2.2:8080"):
        assert gate.ask("GET", "/v1/round", address="127.0.0.1", host=host).status_code == 200
    rebound = gate.ask("GET", "/v1/round", address="127.0.0.1", host="rebound.example:8080")
    check_problem(rebound, 403, "Host: localhost or an address expected, found 'rebound.example:8080'; a server that")
    for name in (
        "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
        "Forwarded", "X-Real-IP", "Via", "CF-Connecting-IP", "True-Client-IP",
    ):  # fmt: skip
        answer = gate.ask("GET", "/v1/round", {name: "203.0.113.7"}, address="127.0.0.1")
        expected = f"{name.lower()}: a request of this machine expected, found one that a proxy forwards"
        check_problem(answer, 403, expected)
    open_to_all = make_gate(SecuritySettings(auth="none"), host="127.0.0.1")
    assert open_to_all.ask("GET", "/v1/round", {"X-Forwarded-For": "203.0.113.7"}, host="x.example").status_code == 200


def test_no_token_is_asked_for_where_that_was_said(make_gate: MakeGate) -> None:
    gate = make_gate(SecuritySettings(auth="none", requests_per_second=1.0, burst=2), host="0.0.0.0")
    assert [gate.ask("GET", "/v1/report").status_code for _ in range(3)] == [200, 200, 429]
    for _ in range(3):
        assert gate.ask("GET", "/v1/report", address="127.0.0.1").status_code == 200


def test_another_sites_page_changes_nothing(gate: Gate) -> None:
    admin = gate.token("boss", "admin")
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9999", "http://[", "file://"):
        for method in ("POST", "DELETE", "PATCH", "PUT"):
            check_problem(gate.ask(method, "/v1/phones", admin | {"Origin": origin}), 403, "a page of another site")
        assert gate.ask("GET", "/v1/phones", admin | {"Origin": origin}).status_code == 200
    assert gate.ask("POST", "/v1/phones", admin | {"Origin": "http://127.0.0.1"}).status_code == 200


SCHEMES = st.sampled_from(["Bearer ", "bearer ", "Basic ", "Digest ", "Bearer", "", " ", "Bearer  ", "Negotiate ,"])
VALUES = st.binary(max_size=300) | st.from_regex(rb"pgd_[0-9a-f]{16}_[0-9a-f]{64}", fullmatch=True)
HEADERS = st.builds(lambda scheme, value: (b"Authorization", scheme.encode() + value), SCHEMES, VALUES)
BASIC = st.builds(lambda value: (b"Authorization", b"Basic " + base64.b64encode(value)), VALUES)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HEADERS | BASIC, min_size=1, max_size=3))
def test_no_authorization_header_gets_in_or_breaks_it(make_gate: MakeGate, headers: list[tuple[bytes, bytes]]) -> None:
    answer = make_gate().ask("GET", "/v1/round", headers)
    check_problem(answer, 401, "a token expected")


def test_two_authorization_headers_are_none(gate: Gate) -> None:
    phone = gate.token("phone1")
    assert gate.ask("GET", "/v1/round", [*phone.items(), *phone.items()]).status_code == 401


def test_a_broken_ledger_lets_nobody_in(make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = make_gate()
    phone = gate.token("phone1")

    monkeypatch.setattr(gate.registry, "authenticate", raising(StorageError("ledger.sqlite: refused")))
    check_problem(gate.ask("GET", "/v1/round", phone), 507, "its disk refuses")


def test_other_protocols_stay_outside(gate: Gate) -> None:
    async def scene() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            raise AssertionError

        await gate.guard({"type": "websocket", "path": "/v1/round", "headers": []}, receive, send)
        return sent

    assert asyncio.run(scene()) == []


def test_a_key_needs_a_certificate() -> None:
    with pytest.raises(ValueError, match="`tls_key` is .*, expected `tls_cert` beside it"):
        SecuritySettings(tls_key=Path("key.pem"))


def test_defaults_are_safe() -> None:
    safe = SecuritySettings()
    assert [safe.asks_for_tokens(host) for host in ("127.0.0.1", "::1", "localhost")] == [False] * 3
    assert [safe.asks_for_tokens(host) for host in ("0.0.0.0", "::", "192.0.2.1", "phones.example", "")] == [True] * 5
    assert safe.warnings("127.0.0.1") == ()
    (local,) = SecuritySettings(auth="none").warnings("127.0.0.1")
    assert "roll back rounds" in local
    (reachable,) = safe.warnings("0.0.0.0")
    assert reachable.startswith("0.0.0.0 is reachable from other machines without TLS:")
    encrypted = structs.replace(safe, tls_cert=Path("cert.pem"))
    assert encrypted.warnings("0.0.0.0") == ()
    (line,) = structs.replace(encrypted, auth="none").warnings("0.0.0.0")
    assert "ANYONE" in line
