"""Tables of phones, tokens and the audit log, in the ledger's database. Times are UTC, in seconds since 1970."""

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from phonograd.server_agg.storage.tables import Base


class Phone(Base):
    """Someone who may talk to the server: a phone, or an administrator."""

    __tablename__ = "phones"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[float]
    revoked_at: Mapped[float | None]


class Token(Base):
    """A token as far as the server knows it: the secret's SHA-256, never the secret.

    A plain hash is enough, unlike a password's: the secret is 256 random bits, and no dictionary holds those.
    """

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)  # the token's public part
    sha256: Mapped[str] = mapped_column(String(64))
    phone: Mapped[int] = mapped_column(ForeignKey("phones.id"), index=True)
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]  # within LAST_USED_SECONDS


class Audit(Base):
    """One thing done or refused. `actor`: a phone's name, `address:IP`, or `operator:USER` at --state."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    outcome: Mapped[str] = mapped_column(index=True)  # done, refused
    detail: Mapped[str]
