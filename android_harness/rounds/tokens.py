"""Phones' tokens and certificates from files, so that each phone authenticates as itself."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, TOKEN, TOKEN_RULE
from phonograd.device_runtime.client.server_client import Connection

CERTIFICATE = re.compile(r"[0-9a-f]{128}\Z")


def read_tokens(path: Path) -> dict[str, str]:
    """Token by phone name, from lines `NAME TOKEN`; empty lines and lines that begin with # are skipped.

    Only its owner may be able to read the file, as with ssh's keys: a token authenticates its bearer as the phone.
    Raises UsageError, whose message contains no token.
    """
    tokens = _by_name(path, "TOKEN", TOKEN, TOKEN_RULE)
    if (mode := path.stat().st_mode & 0o777) & 0o077:
        raise UsageError(f"{path}: expected mode 600, found {mode:o}: others could read the tokens; chmod 600 {path}")
    return tokens


def read_certificates(path: Path) -> dict[str, str]:
    """Certificate by phone name, from lines `NAME CERTIFICATE` as in a file of tokens. Raises UsageError."""
    return _by_name(path, "CERTIFICATE", CERTIFICATE, "128 digits of hex, from `phonograd keys sign`")


def _by_name(path: Path, what: str, pattern: re.Pattern[str], rule: str) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; expected lines NAME {what}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text; expected lines NAME {what}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) != 2 or not PHONE_NAME.match(fields[0]) or not pattern.match(fields[1]):
            raise UsageError(f"{path}: line {number}: expected NAME {what}, the {what.lower()} {rule}")
        if fields[0] in found:
            raise UsageError(f"{path}: line {number}: phone {fields[0]} is listed twice; remove one")
        found[fields[0]] = fields[1]
    return found


@dataclass(frozen=True)
class ServerAccess:
    """The server's connection, and the tokens by phone name; None: all phones use `connection`."""

    connection: Connection
    tokens: Mapping[str, str] | None = None

    def connection_of(self, name: str) -> Connection:
        """The connection of a phone. Raises UsageError if it has no token."""
        if self.tokens is None:
            return self.connection
        if name not in self.tokens:
            raise UsageError(f"phone {name}: it has no token; make one: phonograd tokens add {name}")
        return replace(self.connection, token=self.tokens[name])
