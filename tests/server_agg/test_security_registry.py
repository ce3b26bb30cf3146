"""Phones and their tokens: kept as hashes, expiring, revocable, compared in constant time."""

import contextlib
import hmac
import itertools
import logging
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, TOKEN
from phonograd.server_agg.security.registry import LAST_USED_SECONDS, PhoneRegistry, Principal, RegistryError, Rejected
from phonograd.server_agg.security.tokens import NewToken, lifetime_seconds
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.ledger import Ledger
from tests.server_agg.faults import raising
from tests.server_agg.workshop import Clock

DAY = 86400.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000.0)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with contextlib.closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
        yield ledger


@pytest.fixture
def registry(ledger: Ledger, clock: Clock) -> PhoneRegistry:
    ledger.clock = clock
    return PhoneRegistry(ledger)


def test_a_token_is_its_phones(registry: PhoneRegistry) -> None:
    one, two = (registry.add(name, role, "90d", "me") for name, role in (("phone1", "phone"), ("boss", "admin")))
    assert TOKEN.match(one.token)
    assert registry.authenticate(one.token) == Principal("phone1", "phone")
    assert registry.authenticate(two.token) == Principal("boss", "admin")
    mixed = one.token[:21] + two.token[21:]  # one's public id, the other's secret
    assert registry.authenticate(mixed) == Rejected("unknown")


def test_nobody_can_foresee_a_token() -> None:
    made = []
    for _ in range(2):
        random.seed(1)
        made.append(NewToken.make())
    assert (made[0].id != made[1].id, made[0].secret != made[1].secret) == (True, True)


def test_the_secret_is_nowhere(
    registry: PhoneRegistry, ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [registry.add("phone1", "phone", "90d", "me").token, registry.rotate("phone1", "1d", "1d", "me").token]
    issued = registry.add("phone2", "phone", "90d", "me")
    tokens.append(issued.token)
    assert all(isinstance(registry.authenticate(token), Principal) for token in tokens)
    AuditLog(ledger).record_refusal("phone1", "GET", "/", "403")
    registry.revoke("phone1", "me")
    files = list(tmp_path.glob("ledger.sqlite*"))
    assert {"ledger.sqlite", "ledger.sqlite-wal"} <= {path.name for path in files}
    stored = b"".join(path.read_bytes() for path in files)
    for token in tokens:
        identity, secret = token.split("_")[1:]
        assert identity.encode() in stored
        for form in (secret.encode(), bytes.fromhex(secret)):
            assert form not in stored
        assert secret not in caplog.text
    assert issued.token not in repr(issued)
    parsed = NewToken.parse(issued.token)
    assert parsed is not None
    assert parsed.secret not in repr(parsed)


def test_tokens_expire(registry: PhoneRegistry, clock: Clock) -> None:
    token = registry.add("phone1", "phone", "2d", "me").token
    lasting = registry.add("phone2", "phone", "never", "me").token
    clock.now += 2 * DAY - 1
    assert isinstance(registry.authenticate(token), Principal)
    clock.now += 1
    assert registry.authenticate(token) == Rejected("expired", "phone1", enrolled=True)
    clock.now += 10_000 * DAY
    assert isinstance(registry.authenticate(lasting), Principal)


def test_rotation_ends_the_old_token_after_the_overlap(registry: PhoneRegistry, clock: Clock) -> None:
    old = registry.add("phone1", "phone", "90d", "me").token
    new = registry.rotate("phone1", "90d", "1d", "me").token
    assert old != new
    assert {registry.authenticate(token) for token in (old, new)} == {Principal("phone1", "phone")}
    clock.now += DAY
    assert registry.authenticate(old) == Rejected("expired", "phone1", enrolled=True)
    assert registry.authenticate(new) == Principal("phone1", "phone")
    at_once = registry.rotate("phone1", "90d", "0s", "me").token
    assert registry.authenticate(new) == Rejected("expired", "phone1", enrolled=True)
    last = registry.rotate("phone1", "90d", "never", "me").token
    assert {registry.authenticate(token) for token in (at_once, last)} == {Principal("phone1", "phone")}


def test_rotation_does_not_lengthen_a_token(registry: PhoneRegistry, clock: Clock) -> None:
    token = registry.add("phone1", "phone", "60s", "me").token
    registry.rotate("phone1", "90d", "1d", "me")
    clock.now += 60
    assert registry.authenticate(token) == Rejected("expired", "phone1", enrolled=True)


def test_revocation_is_for_good(registry: PhoneRegistry) -> None:
    tokens = [registry.add("phone1", "phone", "90d", "me").token, registry.rotate("phone1", "90d", "1d", "me").token]
    other = registry.add("phone2", "phone", "90d", "me").token
    assert registry.revoke("phone1", "me") == 2
    assert [registry.authenticate(token) for token in tokens] == [Rejected("revoked", "phone1")] * 2
    assert registry.authenticate(other) == Principal("phone2", "phone")
    again = registry.add("phone1", "admin", "90d", "me").token
    assert registry.authenticate(again) == Principal("phone1", "admin")
    assert [registry.authenticate(token) for token in tokens] == [Rejected("revoked", "phone1", enrolled=True)] * 2


def test_what_cannot_be_done(registry: PhoneRegistry) -> None:
    registry.add("phone1", "phone", "90d", "me")
    registry.add("gone", "phone", "90d", "me")
    registry.revoke("gone", "me")
    for call, status, message in (
        (lambda: registry.add("phone1", "phone", "90d", "me"), 409, "phone phone1: a name that is free expected"),
        (lambda: registry.add("../x", "phone", "90d", "me"), 400, "phone name '../x': 1 to 64 of"),
        (lambda: registry.add("..", "phone", "90d", "me"), 400, "but neither . nor .. expected"),
        (lambda: registry.add("phone2", "root", "90d", "me"), 400, "role 'root': one of phone, admin expected"),
        (lambda: registry.add("phone2", "phone", "90", "me"), 400, r"expires: .* found '90'"),
        (lambda: registry.rotate("phone1", "90d", "soon", "me"), 400, r"overlap: .* found 'soon'"),
        (lambda: registry.rotate("gone", "90d", "1d", "me"), 404, "phone 'gone': an enrolled phone expected"),
        (lambda: registry.revoke("gone", "me"), 404, "phone 'gone': an enrolled phone expected"),
        (lambda: registry.revoke("nobody", "me"), 404, "phone 'nobody'"),
    ):
        with pytest.raises(RegistryError, match=message) as raised:
            call()
        assert raised.value.status == status
    assert [phone.name for phone in registry.phones()] == ["gone", "phone1"]


@pytest.mark.parametrize("name", [".", "..", "...", ".a", "a..", "_.", "-", "%2e", "a/b", "a?b"])
def test_a_phone_is_called_what_its_url_keeps(name: str) -> None:
    kept = urljoin("http://server/v1/phones/x", name) == f"http://server/v1/phones/{name}"
    assert bool(PHONE_NAME.match(name)) == (kept and not set("%/?") & set(name))


def test_the_list_says_what_there_is(registry: PhoneRegistry, clock: Clock) -> None:
    token = registry.add("phone1", "phone", "90d", "me").token
    first = clock.now
    registry.authenticate(token)
    clock.now += LAST_USED_SECONDS - 1
    registry.authenticate(token)
    (phone,) = registry.phones()
    assert (phone.name, phone.role, phone.created_at, phone.revoked_at) == ("phone1", "phone", first, None)
    (entry,) = phone.tokens
    assert (entry.id, entry.expires_at, entry.last_used_at) == (token.split("_")[1], first + 90 * DAY, first)
    clock.now += 1
    registry.authenticate(token)
    assert registry.phones()[0].tokens[0].last_used_at == clock.now
    registry.revoke("phone1", "me")
    assert (registry.phones()[0].revoked_at, registry.phones()[0].tokens[0].revoked_at) == (clock.now, clock.now)


def test_known_and_unknown_ids_are_compared_alike(registry: PhoneRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing takes as long, whether the id exists or not."""
    token = registry.add("phone1", "phone", "90d", "me").token
    revoked = registry.add("phone2", "phone", "90d", "me").token
    registry.revoke("phone2", "me")
    compared: list[tuple[int, int]] = []
    genuine = hmac.compare_digest

    def note_and_compare(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return genuine(one, other)

    monkeypatch.setattr(hmac, "compare_digest", note_and_compare)
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    unknown = "pgd_" + "0" * 16 + token[20:]
    assert registry.authenticate(token) == Principal("phone1", "phone")
    assert registry.authenticate(wrong) == Rejected("unknown")
    assert registry.authenticate(unknown) == Rejected("unknown")
    assert registry.authenticate(revoked) == Rejected("revoked", "phone2")
    assert compared == [(64, 64)] * 4


def test_a_stolen_id_learns_nothing(registry: PhoneRegistry) -> None:
    """Only who has the secret hears that the token was revoked or has expired."""
    token = registry.add("phone1", "phone", "0s", "me").token
    assert registry.authenticate(token) == Rejected("expired", "phone1", enrolled=True)
    assert registry.authenticate(token[:21] + "0" * 64) == Rejected("unknown")


# What may become of a token on its way: something around it, in it, or in place of a part of it.
CHANGES = st.one_of(
    st.text(min_size=1, max_size=10).map(lambda more: lambda token: token + more),
    st.text(min_size=1, max_size=10).map(lambda more: lambda token: more + token),
    st.integers(1, 85).map(lambda length: lambda token: token[:-length]),
    st.integers(0, 84).flatmap(
        lambda at: st.characters().map(lambda other: lambda token: token[:at] + other + token[at + 1 :])
    ),
    st.sampled_from([str.upper, str.title, lambda token: token.replace("_", "-"), lambda token: token + token]),
    st.text(max_size=120).map(lambda text: lambda _: text),
    st.from_regex(r"pgd_[0-9a-f]{16}_[0-9a-f]{64}", fullmatch=True).map(lambda text: lambda _: text),
)


@pytest.fixture
def token(registry: PhoneRegistry) -> str:
    return registry.add("phone1", "phone", "90d", "me").token


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=CHANGES)
@example(change=lambda token: token + "\n")
@example(change=lambda token: " " + token)
def test_no_other_text_is_a_token(registry: PhoneRegistry, token: str, change: Callable[[str], str]) -> None:
    text = change(token)
    assume(text != token)
    assert registry.authenticate(text) == Rejected("unknown")


ADD_PHONES = """
import sys
from pathlib import Path
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.storage.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), create=False)
for number in range(10):
    PhoneRegistry(ledger).add(f"{sys.argv[2]}{number}", "phone", "90d", "me")
"""


def test_two_processes_write_at_once(registry: PhoneRegistry, tmp_path: Path) -> None:
    line = [sys.executable, "-c", ADD_PHONES, str(tmp_path / "ledger.sqlite")]
    other = subprocess.Popen([*line, "b"], cwd=ROOT)
    for number in range(10):
        registry.add(f"a{number}", "phone", "90d", "me")
    assert other.wait() == 0
    expected = sorted(f"{prefix}{number}" for prefix, number in itertools.product("ab", range(10)))
    assert [phone.name for phone in registry.phones()] == expected


def test_what_is_done_is_in_the_audit_log(registry: PhoneRegistry, ledger: Ledger, clock: Clock) -> None:
    registry.add("phone1", "phone", "90d", "boss")
    clock.now += 1
    registry.rotate("phone1", "30d", "1d", "boss")
    with pytest.raises(RegistryError):
        registry.add("phone1", "phone", "90d", "boss")
    registry.revoke("phone1", "operator:me")
    entries = AuditLog(ledger).entries()
    assert [(entry.actor, entry.action, entry.subject, entry.outcome, entry.detail) for entry in entries] == [
        ("operator:me", "phones revoke", "phone1", "done", "2 tokens"),
        ("boss", "phones rotate", "phone1", "done", "expires 30d, overlap 1d"),
        ("boss", "phones add", "phone1", "done", "role phone, expires 90d"),
    ]
    assert (entries[0].at, entries[2].at) == (clock.now, clock.now - 1)
    assert AuditLog(ledger).entries(limit=1, before=entries[0].id) == [entries[1]]


def test_nothing_is_done_that_cannot_be_written_down(
    registry: PhoneRegistry, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = registry.add("phone1", "phone", "90d", "me").token

    monkeypatch.setattr("phonograd.server_agg.security.registry.record", raising(StorageError("the ledger refused")))
    for act in (
        lambda: registry.add("phone2", "phone", "90d", "me"),
        lambda: registry.rotate("phone1", "90d", "0s", "me"),
        lambda: registry.revoke("phone1", "me"),
    ):
        with pytest.raises(StorageError):
            act()
    assert registry.authenticate(token) == Principal("phone1", "phone")
    assert [(phone.name, len(phone.tokens)) for phone in registry.phones()] == [("phone1", 1)]


def test_refusals_cannot_fill_the_disk(ledger: Ledger, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    ledger.clock = clock
    audit = AuditLog(ledger, kept=70)
    PhoneRegistry(ledger).add("phone0", "phone", "90d", "me")
    for number in range(1000):
        audit.record_refusal("address:192.0.2.1", "GET", f"/{number}", "401: a token expected")
    assert [entry.outcome for entry in audit.entries(1000)] == ["refused"] * 60 + ["done"]
    assert len(caplog.records) == 60
    clock.now += 1
    audit.record_refusal("address:192.0.2.1", "GET", "/last", "401: a token expected")
    (newest,) = audit.entries(1)
    assert newest.detail == "401: a token expected (and 940 earlier refusals over the rate limit)"
    for _ in range(30):
        clock.now += 1
        audit.record_refusal("address:192.0.2.1", "GET", "/", "401")
    PhoneRegistry(ledger).add("phone1", "phone", "90d", "me")
    refused = [entry for entry in audit.entries(1000) if entry.outcome == "refused"]
    assert len(refused) == 70
    assert refused[-1].subject == "/21"  # the oldest of 91 are gone
    done = [entry.subject for entry in audit.entries(1000) if entry.outcome == "done"]
    assert done == ["phone1", "phone0"]  # for good, older than any of them


def test_what_strangers_write_is_one_printable_line(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(ledger).record_refusal("address:x", "GET", "/\n2026 INFO all is well\x1b[2J", "4" * 10_000)
    (entry,) = AuditLog(ledger).entries()
    assert entry.subject == "/?2026 INFO all is well?[2J"
    assert len(entry.detail) == 300
    assert "\n2026" not in caplog.text
    (record,) = caplog.records
    assert (record.__dict__["actor"], record.__dict__["outcome"]) == ("address:x", "refused")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 90 * DAY), ("12h", DAY / 2), ("5m", 300.0), ("0s", 0.0), ("never", None)]
)
def test_lifetimes(text: str, seconds: float | None) -> None:
    assert lifetime_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "d", "-1d", "1.5d", "1w", "1d ", "1d\n", "99999999d", "٣d", "NEVER", "9" * 5000 + "d"]
)
def test_no_lifetimes(text: str) -> None:
    with pytest.raises(ValueError, match="10 years at most, or never expected, found"):
        lifetime_seconds(text)
