"""Phones' tokens from a file, so that each phone authenticates as itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, TOKEN, TOKEN_RULE
from phonograd.device_runtime.client.server_client import Connection


def read_tokens(path: Path) -> dict[str, str]:
    """Token by phone name, from lines `NAME TOKEN`; empty lines and lines that begin with # are skipped.

    Only its owner may be able to read the file, as with ssh's keys: a token authenticates its bearer as the phone.
    Raises UsageError, whose message contains no token.
    """
    try:
        mode = path.stat().st_mode & 0o777
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; expected lines NAME TOKEN") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text; expected lines NAME TOKEN") from error
    if mode & 0o077:
        raise UsageError(f"{path}: expected mode 600, found {mode:o}: others could read the tokens; chmod 600 {path}")
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if len(fields) != 2 or not PHONE_NAME.match(fields[0]) or not TOKEN.match(fields[1]):
            raise UsageError(f"{path}: line {number}: expected NAME TOKEN, the token {TOKEN_RULE}")
        if fields[0] in tokens:
            raise UsageError(f"{path}: line {number}: phone {fields[0]} is listed twice; remove one")
        tokens[fields[0]] = fields[1]
    return tokens


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
