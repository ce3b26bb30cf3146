"""`phonograd tokens add|rotate|revoke|list|audit`: who may talk to a server, and what was done and refused.

With --state, or --ledger, they work on the ledger itself, whether a server runs on it or not: so the first
administrator is made. With --server and an administrator's token they ask the server.
"""

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from phonograd.commands.connecting import place_options
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import written
from phonograd.device_runtime.client.owner_file import operator_name
from phonograd.device_runtime.client.server_client import Connection, ask
from phonograd.server_agg.security.tokens import DEFAULT_LIFETIME, DEFAULT_OVERLAP
from phonograd.server_agg.settings.storage import ServerStorage

if TYPE_CHECKING:
    from phonograd.server_agg.storage.ledger import Ledger

expires_option = click.option(
    "--expires", default=DEFAULT_LIFETIME, help="How long the token is valid: 90d, 12h, never."
)


@click.group()
def tokens() -> None:
    """Enrol phones and administrators, replace and revoke their tokens, and read the audit log."""


@tokens.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["phone", "admin"]), default="phone")
@expires_option
@place_options
@output_options
def add(console: Console, place: Connection | ServerStorage, name: str, role: str, expires: str) -> None:
    """Enrol NAME and show its token once."""
    if isinstance(place, Connection):
        issued = ask(place, "POST", "/v1/phones", {"name": name, "role": role, "expires": expires}, 201)
    else:
        from phonograd.server_agg.security.registry import PhoneRegistry

        with _ledger(place, console) as ledger:
            issued = written(PhoneRegistry(ledger).add(name, role, expires, operator_name()))
    _show_token(console, issued)


@tokens.command()
@click.argument("name")
@expires_option
@click.option("--overlap", default=DEFAULT_OVERLAP, help="How long the old tokens stay valid at most: 1d, 0s.")
@place_options
@output_options
def rotate(console: Console, place: Connection | ServerStorage, name: str, expires: str, overlap: str) -> None:
    """Show a new token for NAME once; its other tokens expire soon."""
    if isinstance(place, Connection):
        path = f"/v1/phones/{quote(name, safe='')}/tokens"
        issued = ask(place, "POST", path, {"expires": expires, "overlap": overlap}, 201)
    else:
        from phonograd.server_agg.security.registry import PhoneRegistry

        with _ledger(place) as ledger:
            issued = written(PhoneRegistry(ledger).rotate(name, expires, overlap, operator_name()))
    _show_token(console, issued)


@tokens.command()
@click.argument("name")
@place_options
@output_options
def revoke(console: Console, place: Connection | ServerStorage, name: str) -> None:
    """Revoke all tokens of NAME, from the next request on."""
    if isinstance(place, Connection):
        document = ask(place, "DELETE", f"/v1/phones/{quote(name, safe='')}")
    else:
        from phonograd.server_agg.security.registry import PhoneRegistry

        with _ledger(place) as ledger:
            document = {"name": name, "tokens_revoked": PhoneRegistry(ledger).revoke(name, operator_name())}
    console.result(document, ("Revoked", [document]))


@tokens.command("list")
@place_options
@output_options
def list_(console: Console, place: Connection | ServerStorage) -> None:
    """List all phones and administrators, without their tokens."""
    if isinstance(place, Connection):
        document = ask(place, "GET", "/v1/phones")
    else:
        from phonograd.server_agg.security.registry import PhoneRegistry

        with _ledger(place) as ledger:
            document = {"phones": [written(phone) for phone in PhoneRegistry(ledger).phones()]}
    console.result(document, ("Phones", [_phone_row(phone, time.time()) for phone in document["phones"]]))


@tokens.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="Number of newest entries.")
@place_options
@output_options
def audit(console: Console, place: Connection | ServerStorage, limit: int) -> None:
    """Show what administrators did and which requests were refused, newest first."""
    if isinstance(place, Connection):
        document = ask(place, "GET", f"/v1/audit?limit={limit}")
    else:
        from phonograd.server_agg.storage.audit import AuditLog

        with _ledger(place) as ledger:
            document = {"entries": [written(entry) for entry in AuditLog(ledger).entries(limit)]}
    rows = [{**entry, "at": _moment(entry["at"])} for entry in document["entries"]]
    console.result(document, ("Audit log", rows))


@contextlib.contextmanager
def _ledger(place: ServerStorage, console: Console | None = None) -> Iterator["Ledger"]:
    """The ledger at `place`. With `console`, a missing one is created, and a line there says so."""
    from phonograd.server_agg.storage.folder_claim import LEDGER, claim
    from phonograd.server_agg.storage.ledger import ledger_of

    state = place.ledger
    with contextlib.ExitStack() as stack:
        if isinstance(state, Path) and console is not None:
            if (state / LEDGER).exists():
                claim(state)
            else:
                stack.enter_context(_new_state_folder(state))
                console.say(f"{state}: a new state folder")
        yield stack.enter_context(ledger_of(place, create=console is not None))


@contextlib.contextmanager
def _new_state_folder(state: Path) -> Iterator[None]:
    """Hold a new state folder while the block runs; nothing is left of it if the block fails."""
    from phonograd.server_agg.storage.state_folder import StateFolder

    folder, done = StateFolder(state), False
    try:
        yield
        done = True
    finally:
        folder.close(keep=done)


def _show_token(console: Console, issued: dict[str, Any]) -> None:
    """The token alone on stdout, for people and scripts to take; all else on stderr."""
    console.text(issued, issued["token"])
    console.say(
        f"{issued['name']} ({issued['role']}) until {_moment(issued['expires_at'])}; the token is not shown again: "
        "give it to its owner as PHONOGRAD_TOKEN"
    )


def _phone_row(phone: dict[str, Any], now: float) -> dict[str, object]:
    tokens = phone["tokens"]
    valid = [
        token
        for token in tokens
        if token["revoked_at"] is None and (token["expires_at"] is None or token["expires_at"] > now)
    ]
    used = [token["last_used_at"] for token in tokens if token["last_used_at"] is not None]
    ends = [token["expires_at"] for token in valid]
    return {
        "name": phone["name"],
        "role": phone["role"],
        "state": "revoked" if phone["revoked_at"] is not None else "enrolled" if valid else "expired",
        "enrolled": _moment(phone["created_at"]),
        "valid tokens": len(valid),
        "until": _moment(None if None in ends else max(ends)) if ends else "-",
        "last used": _moment(max(used)) if used else "-",
    }


def _moment(at: float | None) -> str:
    return "no end" if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
