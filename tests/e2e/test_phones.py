"""`phonograd tokens`, and a server with tokens and TLS as the commands start and use it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from phonograd.device_runtime.client.protocol import TOKEN
from tests.support.command_line import Run, Workplace
from tests.support.waiting import PATIENCE_SECONDS


def test_the_first_administrator(phono: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = phono("tokens", "add", "boss", "--role", "admin", "--expires", "12h", "--state", state)
    assert made.code == 0
    assert TOKEN.match(made.out.rstrip("\n"))  # alone, for a script to take
    assert "a new state folder" in made.err
    assert "boss (admin) until" in made.err
    assert "not shown again" in made.err
    assert made.out.strip() not in made.err
    assert (state.stat().st_mode & 0o777, (state / "ledger.sqlite").is_file()) == (0o700, True)
    more = phono("tokens", "add", "phone1", "--state", state, "--json").document
    assert (more["name"], more["role"], bool(TOKEN.match(more["token"]))) == ("phone1", "phone", True)


def test_tables_and_documents(phono: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name in ("phone1", "phone2"):
        assert phono("tokens", "add", name, "--state", state, "--quiet").err == ""
    assert phono("tokens", "rotate", "phone1", "--overlap", "0s", "--expires", "never", "--state", state).code == 0
    revoked = phono("tokens", "revoke", "phone2", "--state", state, "--json").document
    assert revoked == {"name": "phone2", "tokens_revoked": 1}
    listed = phono("tokens", "list", "--state", state, "--json").document["phones"]
    assert [(phone["name"], len(phone["tokens"])) for phone in listed] == [("phone1", 2), ("phone2", 1)]
    table = phono("tokens", "list", "--state", state).out
    assert "enrolled" in table
    assert "it is revoked" in table
    assert "revoked" in table
    entries = phono("tokens", "audit", "--limit", "2", "--state", state, "--json").document["entries"]
    assert [entry["action"] for entry in entries] == ["phones revoke", "phones rotate"]
    assert "phones revoke" in phono("tokens", "audit", "--state", state).out


def test_what_is_refused(phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    assert phono("tokens", "add", "phone1", "--state", state).code == 0
    token = f"pgd_{'0' * 16}_{'1' * 64}"
    for arguments, code, message in (
        (("tokens", "add", "phone1", "--state", state), 2, "phone phone1: a name that is free expected"),
        (("tokens", "rotate", "x", "--state", state), 2, "phone 'x': an enrolled phone expected"),
        (("tokens", "list", "--state", tmp_path / "none"), 11, "no ledger found"),
        (("tokens", "add", "x", "--state", "/proc/none"), 11, "/proc/none: cannot write"),
        (("tokens", "list"), 2, "give one of --state DIR, --ledger URL, or --server URL and --token"),
        (("tokens", "list", "--state", state, "--server", "http://127.0.0.1:9"), 2, "give one of --state DIR"),
        (("tokens", "list", "--server", "http://192.0.2.1", "--token", token), 2, "or allow it with --token-over-http"),
        (("tokens", "list", "--server", "https://127.0.0.1:9", "--token", "x"), 2, "found 1 other characters"),
        (("tokens", "list", "--server", "http://127.0.0.1:9", "--token", token, "--wait", "0"), 9, "cannot be reached"),
        (("serve", "--artifacts", tmp_path, "--state", "s", "--tls-key", "key"), 2, "expected --tls-cert beside it"),
        (
            ("serve", "--artifacts", workplace.artifacts, "--state", state, "--tls-cert", tmp_path / "none.pem"),
            18,
            f"phonograd: --tls-cert {tmp_path}/none.pem: cannot be read",
        ),
    ):
        outcome = phono(*arguments)
        assert (outcome.code, outcome.out) == (code, ""), outcome.err
        assert message in outcome.err
        assert "a bug" not in outcome.err
    monkeypatch.setenv("PHONOGRAD_TOKEN", "hunter2")
    outcome = phono("report", "--server", "http://127.0.0.1:9")
    assert (outcome.code, "hunter2" in outcome.err) == (2, False)


@pytest.mark.long
def test_a_round_with_tokens_over_tls(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, both, state = tmp_path / "authority.pem", tmp_path / "server.pem", tmp_path / "state"
    certificates = trustme.CA()
    certificates.cert_pem.write_to_path(str(authority))
    certificates.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(both))
    update = tmp_path / "phone1.update"
    arguments = ("--user", workplace.user, "--rehearsal", workplace.general, "--update", update)
    assert phono("train", workplace.artifacts, *arguments).code == 0
    boss = phono("tokens", "add", "boss", "--role", "admin", "--state", state).out.strip()

    line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", workplace.artifacts, "--state", state]
    line += [
        "--port",
        "0",
        "--json",
        "--quiet",
        "--set",
        "security.auth=tokens",
        "--tls-cert",
        both,
        "--clients-per-round",
        "1",
    ]
    with subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert url.startswith("https://127.0.0.1:")
            there = ("--server", url, "--ca-cert", authority)
            phone = phono("tokens", "add", "phone1", *there, "--token", boss, "--json").document["token"]
            monkeypatch.setenv("PHONOGRAD_TOKEN", phone)
            assert phono("upload", update, *there, "--json").document["round_closed"]
            refused = phono("report", *there)
            assert (refused.code, "an administrator's token expected" in refused.err) == (8, True)
            assert phono("report", *there, "--token", boss, "--json").document["totals"]["accepted"] == 1
            rotated = phono("tokens", "rotate", "phone1", *there, "--token", boss, "--quiet").out.strip()
            assert rotated != phone
            assert phono("tokens", "revoke", "phone1", "--state", state).code == 0
            gone = phono("upload", update, *there, "--phone", "phone1")
            assert (gone.code, "the token was revoked" in gone.err) == (8, True)
            listed = phono("tokens", "list", *there, "--token", boss, "--json").document["phones"]
            assert [phone["revoked_at"] is None for phone in listed] == [True, False]
            entries = phono("tokens", "audit", *there, "--token", boss, "--json").document["entries"]
            assert {"phones add", "phones rotate", "phones revoke", "GET"} <= {entry["action"] for entry in entries}
        finally:
            process.send_signal(signal.SIGTERM)
            _, logged = process.communicate(timeout=PATIENCE_SECONDS)
    for secret in (boss, phone, rotated):
        assert secret.split("_")[2] not in logged
