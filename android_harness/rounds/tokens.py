"""Phones' tokens, from a file: each phone speaks to the server in its own name."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, TOKEN, TOKEN_RULE
from phonograd.device_runtime.client.server_client import Connection


def read_tokens(path: Path) -> dict[str, str]:
    """Token by phone's name, from lines `NAME TOKEN`; empty ones and those that begin with # are passed over.

    The file must be its owner's alone, as ssh asks of keys: who reads a token can speak for the phone. Raises
    UsageError, which shows no token.
    """
    try:
        mode = path.stat().st_mode & 0o777
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; expected lines NAME TOKEN") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text; expected lines NAME TOKEN") from error
    if mode & 0o077:
        raise UsageError(f"{path}: mode 600 expected, found {mode:o}: others could read the tokens; chmod 600 {path}")
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) != 2 or not PHONE_NAME.match(fields[0]) or not TOKEN.match(fields[1]):
            raise UsageError(f"{path}: line {number}: NAME TOKEN expected, the token {TOKEN_RULE}")
        if fields[0] in tokens:
            raise UsageError(f"{path}: line {number}: phone {fields[0]} stands twice; remove one")
        tokens[fields[0]] = fields[1]
    return tokens


def connection_of(connection: Connection, tokens: Mapping[str, str] | None, name: str) -> Connection:
    """How phone `name` reaches the server: with its own token where there are tokens, else as `connection`.

    Raises UsageError for a phone without a token.
    """
    if tokens is None:
        return connection
    if name not in tokens:
        raise UsageError(f"phone {name}: no token for it; make one: phonograd tokens add {name}")
    return dataclasses.replace(connection, token=tokens[name])
