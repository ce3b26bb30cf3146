"""The registry of phones: who is enrolled, with which tokens, and whom a token belongs to.

It lives in the ledger's database, so a command that adds or revokes a phone beside a running server takes effect at
the server's next request.
"""

import logging
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.security.tokens import NewToken, lifetime_seconds
from phonograd.server_agg.storage.audit import record
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Phone, Token

log = logging.getLogger(__name__)

Role = Literal["phone", "admin"]
# A token's last use is noted this often at most: a disk write a request would cost more than it tells.
LAST_USED_SECONDS = 3600.0


class RegistryError(RequestError):
    """A name that is invalid (400), unknown (404) or taken (409)."""

    exit_code = 2


@dataclass(frozen=True)
class Principal:
    """Whoever a valid token belongs to."""

    name: str
    role: Role


@dataclass(frozen=True)
class Rejected:
    """A refused token and why.

    phone: its phone, which only the holder of the right secret learns
    enrolled: the phone still is
    """

    reason: Literal["unknown", "expired", "revoked"]
    phone: str | None = None
    enrolled: bool = False


class IssuedToken(Record, frozen=True):
    """A fresh token, shown this once; `expires_at` in seconds since 1970, None: never."""

    name: str
    role: Role
    token: str
    expires_at: float | None

    def __repr__(self) -> str:  # without the token: it goes to its owner, and into no log
        return f"IssuedToken(name={self.name!r}, role={self.role!r}, expires_at={self.expires_at!r})"


class TokenEntry(Record, frozen=True):
    """A token without its secret; times in seconds since 1970. `last_used_at`: to the hour."""

    id: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None

    def valid(self, now: float) -> bool:
        """Return whether the server takes it at `now`."""
        return self.revoked_at is None and not _is_expired(self.expires_at, now)


class PhoneEntry(Record, frozen=True):
    """A phone or administrator and all its tokens, oldest first; times in seconds since 1970."""

    name: str
    role: Role
    created_at: float
    revoked_at: float | None
    tokens: tuple[TokenEntry, ...]


class PhoneRegistry:
    """The phones of a ledger; safe to use from several threads and processes.

    `actor` is who acts, for the audit log. Every method raises StorageError if SQLite refuses.
    """

    def __init__(self, ledger: Ledger):
        self._ledger = ledger

    def add(self, name: str, role: str, expires: str, actor: str) -> IssuedToken:
        """Enrol `name` (again, if it was revoked) with a token that lasts `expires` (see tokens.py).

        Raises RegistryError for an invalid or taken name, an unknown role or lifetime.
        """
        if not PHONE_NAME.match(name):
            raise RegistryError(400, f"phone name {name[:80]!r}: {PHONE_NAME_RULE} expected; choose another")
        if role not in get_args(Role):
            raise RegistryError(400, f"role {role[:80]!r}: one of {', '.join(get_args(Role))} expected")
        seconds = _lifetime("expires", expires)
        now = self._ledger.clock()
        with self._ledger.writing() as session:
            phone = session.scalar(select(Phone).where(Phone.name == name))
            if phone is None:
                phone = Phone(name=name, role=role, created_at=now)
                session.add(phone)
            elif phone.revoked_at is None:
                raise RegistryError(409, f"phone {name}: a name that is free expected, found it enrolled; rotate it")
            phone.role, phone.revoked_at = role, None
            session.flush()
            issued = _issue(session, phone, now, seconds)
            record(session, now, actor, "phones add", name, f"role {role}, expires {expires}")
        return issued

    def rotate(self, name: str, expires: str, overlap: str, actor: str) -> IssuedToken:
        """A fresh token for `name`; those it has end after `overlap` at the latest.

        Raises RegistryError for a name nobody has, or an unknown lifetime.
        """
        seconds, overlap_seconds = _lifetime("expires", expires), _lifetime("overlap", overlap)
        now = self._ledger.clock()
        with self._ledger.writing() as session:
            phone = _find_enrolled(session, name)
            if overlap_seconds is not None:
                end = now + overlap_seconds
                lasting = (Token.phone == phone.id) & (Token.expires_at.is_(None) | (Token.expires_at > end))
                session.execute(update(Token).where(lasting).values(expires_at=end))
            issued = _issue(session, phone, now, seconds)
            record(session, now, actor, "phones rotate", name, f"expires {expires}, overlap {overlap}")
        return issued

    def revoke(self, name: str, actor: str) -> int:
        """Revoke `name` with all its tokens, from now on; how many were not revoked before. Raises RegistryError."""
        now = self._ledger.clock()
        with self._ledger.writing() as session:
            phone = _find_enrolled(session, name)
            phone.revoked_at = now
            living = select(Token).where(Token.phone == phone.id, Token.revoked_at.is_(None))
            tokens = list(session.scalars(living))
            for token in tokens:
                token.revoked_at = now
            record(session, now, actor, "phones revoke", name, f"{len(tokens)} tokens")
        return len(tokens)

    def phones(self) -> tuple[PhoneEntry, ...]:
        """All phones and administrators by name, the revoked ones too."""
        with self._ledger.reading() as session:
            tokens: dict[int, list[TokenEntry]] = {}
            for row in session.scalars(select(Token).order_by(Token.created_at, Token.id)):
                entry = TokenEntry(row.id, row.created_at, row.expires_at, row.revoked_at, row.last_used_at)
                tokens.setdefault(row.phone, []).append(entry)
            return tuple(
                PhoneEntry(row.name, _role(row), row.created_at, row.revoked_at, tuple(tokens.get(row.id, ())))
                for row in session.scalars(select(Phone).order_by(Phone.name))
            )

    def authenticate(self, text: str) -> Principal | Rejected:
        """Whom the token `text` belongs to, or why it is not taken; the time it takes tells nothing of the secret."""
        offered = NewToken.parse(text)
        if offered is None:
            return Rejected("unknown")
        now = self._ledger.clock()
        with self._ledger.reading() as session:
            row = session.execute(select(Token, Phone).join(Phone).where(Token.id == offered.id)).one_or_none()
        token, phone = row if row is not None else (None, None)
        genuine = offered.belongs_to(token.sha256 if token is not None else None)
        if not genuine or token is None or phone is None:
            return Rejected("unknown")
        enrolled = phone.revoked_at is None
        if token.revoked_at is not None or not enrolled:
            return Rejected("revoked", phone.name, enrolled)
        if _is_expired(token.expires_at, now):
            return Rejected("expired", phone.name, enrolled)
        if token.last_used_at is None or now - token.last_used_at >= LAST_USED_SECONDS:
            self._note_use(token.id, now)
        return Principal(phone.name, _role(phone))

    def _note_use(self, token_id: str, now: float) -> None:
        try:
            with self._ledger.writing() as session:
                session.execute(update(Token).where(Token.id == token_id).values(last_used_at=now))
        except StorageError as error:  # a full disk shuts nobody out
            log.error("the last use of token %s could not be written down: %s", token_id, error)


def _find_enrolled(session: Session, name: str) -> Phone:
    phone = session.scalar(select(Phone).where(Phone.name == name, Phone.revoked_at.is_(None)))
    if phone is None:
        raise RegistryError(404, f"phone {name[:80]!r}: an enrolled phone expected; see `phonograd tokens list`")
    return phone


def _issue(session: Session, phone: Phone, now: float, seconds: float | None) -> IssuedToken:
    token = NewToken.make()
    expires_at = None if seconds is None else now + seconds
    session.add(Token(id=token.id, sha256=token.sha256, phone=phone.id, created_at=now, expires_at=expires_at))
    return IssuedToken(phone.name, _role(phone), token.text, expires_at)


def _lifetime(what: str, text: str) -> float | None:
    try:
        return lifetime_seconds(text)
    except ValueError as error:
        raise RegistryError(400, f"{what}: {error}") from error


def _is_expired(expires_at: float | None, now: float) -> bool:
    return expires_at is not None and now >= expires_at


def _role(phone: Phone) -> Role:
    return "admin" if phone.role == "admin" else "phone"
