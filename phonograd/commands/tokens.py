"""`phonograd tokens add|rotate|revoke|list|audit`: who may talk to a server, and what was done and refused.

With --state, or --ledger, they work on the ledger itself, whether a server runs on it or not: so the first
administrator is made. With --server and an administrator's token they ask the server.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import click

from phonograd.commands.connecting import place_options
from phonograd.commands.options import arg, opt, own_options
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.client.owner_file import operator_name
from phonograd.device_runtime.client.server_client import Connection, ask
from phonograd.pages import to_words
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.security.tokens import DEFAULT_LIFETIME, DEFAULT_OVERLAP
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.folder_claim import LEDGER, claim
from phonograd.server_agg.storage.ledger import Ledger, ledger_of
from phonograd.server_agg.storage.state_folder import StateFolder

EXPIRES = opt("How long the token is valid: 90d, 12h, never.")
Place = Connection | ServerStorage


@click.group()
def tokens() -> None:
    """Enrol phones and administrators, replace and revoke their tokens, and read the audit log."""


@tokens.command()
@own_options
@place_options()
@output_options
def add(
    console: Console,
    place: Place,
    name: Annotated[str, arg()],
    role: Annotated[Literal["phone", "admin"], opt()] = "phone",
    expires: Annotated[str, EXPIRES] = DEFAULT_LIFETIME,
) -> None:
    """Enrol NAME and show its token once."""
    request = ("POST", "/v1/phones", {"name": name, "role": role, "expires": expires}, 201)
    made = _carry_out(
        place, request, lambda ledger: PhoneRegistry(ledger).add(name, role, expires, operator_name()), console
    )
    _show_token(console, made)


@tokens.command()
@own_options
@place_options()
@output_options
def rotate(
    console: Console,
    place: Place,
    name: Annotated[str, arg()],
    expires: Annotated[str, EXPIRES] = DEFAULT_LIFETIME,
    overlap: Annotated[str, opt("How long the old tokens stay valid at most: 1d, 0s.")] = DEFAULT_OVERLAP,
) -> None:
    """Show a new token for NAME once; its other tokens stay valid for --overlap."""
    request = ("POST", f"/v1/phones/{quote(name, safe='')}/tokens", {"expires": expires, "overlap": overlap}, 201)
    made = _carry_out(
        place, request, lambda ledger: PhoneRegistry(ledger).rotate(name, expires, overlap, operator_name())
    )
    _show_token(console, made)


@tokens.command()
@own_options
@place_options()
@output_options
def revoke(console: Console, place: Place, name: Annotated[str, arg()]) -> None:
    """Revoke all tokens of NAME, from the next request on."""

    def local(ledger: Ledger) -> dict[str, Any]:
        return {"name": name, "tokens_revoked": PhoneRegistry(ledger).revoke(name, operator_name())}

    document = _carry_out(place, ("DELETE", f"/v1/phones/{quote(name, safe='')}"), local)
    console.result(document, ("Revoked", [to_words(document)]))


@tokens.command("list")
@place_options()
@output_options
def list_(console: Console, place: Place) -> None:
    """List all phones and administrators, without their tokens."""
    document = _carry_out(place, ("GET", "/v1/phones"), lambda ledger: {"phones": PhoneRegistry(ledger).phones()})
    console.result(document, ("Phones", [_phone_row(phone, time.time()) for phone in document["phones"]]))


@tokens.command()
@own_options
@place_options()
@output_options
def audit(
    console: Console,
    place: Place,
    limit: Annotated[int, opt("Number of newest entries.", click.IntRange(1, 1000))] = 100,
) -> None:
    """Show what administrators did and which requests were refused, newest first."""
    request = ("GET", f"/v1/audit?limit={limit}")
    document = _carry_out(place, request, lambda ledger: {"entries": AuditLog(ledger).entries(limit)})
    rows = [{**entry, "at": _moment(entry["at"])} for entry in document["entries"]]
    console.result(document, ("Audit log", rows))


def _carry_out(
    place: Place, request: tuple[Any, ...], local: Callable[[Ledger], Any], console: Console | None = None
) -> Any:
    """What the server answers to the request, or what is done on its ledger.

    With `console`, a ledger that is missing is created, and a line there says so.
    """
    if isinstance(place, Connection):
        return ask(place, *request)
    with contextlib.ExitStack() as stack:
        if isinstance(state := place.ledger, Path) and console is not None:
            if (state / LEDGER).exists():
                claim(state)
            else:
                stack.enter_context(_new_state_folder(state))
                console.say(f"{state}: a new state folder")
        return document_of(local(stack.enter_context(ledger_of(place, create=console is not None))))


@contextlib.contextmanager
def _new_state_folder(state: Path) -> Iterator[None]:
    """Hold a new state folder while the block runs; nothing is left of it if the block fails."""
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
    ends = [token["expires_at"] for token in tokens if token["revoked_at"] is None]
    ends = [end for end in ends if end is None or end > now]
    used = [token["last_used_at"] for token in tokens if token["last_used_at"] is not None]
    return {
        "name": phone["name"],
        "role": phone["role"],
        "state": "revoked" if phone["revoked_at"] is not None else "enrolled" if ends else "expired",
        "enrolled": _moment(phone["created_at"]),
        "valid tokens": len(ends),
        "until": _moment(None if None in ends else max(ends)) if ends else "-",
        "last used": _moment(max(used)) if used else "-",
    }


def _moment(at: float | None) -> str:
    return "it is revoked" if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
