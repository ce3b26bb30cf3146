"""The ledger's tables. Times are UTC, in seconds since 1970; sizes are bytes; hashes are hex SHA-256."""

from typing import Literal

from sqlalchemy import ForeignKey, Index, String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_VERSION = 1

# accepted: counts in the round. repeated: an accepted update sent again, answered and not counted. rejected: the rest.
UploadState = Literal["accepted", "repeated", "rejected"]


class Base(DeclarativeBase):
    """Base of the ledger's tables."""


class Model(Base):
    """A model the server has sent out: the exported one, or the result of a round."""

    __tablename__ = "models"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    round: Mapped[int]  # that made it; 0: exported
    parent_sha256: Mapped[str | None] = mapped_column(String(64))
    bytes: Mapped[int]
    created_at: Mapped[float]


class Round(Base):
    """A round: open while `closed_at` is null. At most one is open."""

    __tablename__ = "rounds"
    number: Mapped[int] = mapped_column(primary_key=True)
    base_sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"))
    result_sha256: Mapped[str | None] = mapped_column(ForeignKey("models.sha256"))
    clients_per_round: Mapped[int]
    weighting: Mapped[str]
    opened_at: Mapped[float]
    closed_at: Mapped[float | None]


class Upload(Base):
    """One POST of an update, whatever became of it."""

    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), index=True)
    phone: Mapped[str | None] = mapped_column(String(64))
    sha256: Mapped[str | None] = mapped_column(String(64))
    codec: Mapped[str | None]
    tokens: Mapped[int | None]
    weight: Mapped[int | None]  # in the round's average, if accepted
    body_bytes: Mapped[int]
    header_bytes: Mapped[int]
    seconds: Mapped[float]  # from the first byte to the last
    state: Mapped[str]
    reason: Mapped[str | None]
    received_at: Mapped[float]


# A phone takes part in a round once; held by the database, not by code alone.
Index(
    "one_accepted_update_per_phone",
    Upload.round,
    Upload.phone,
    unique=True,
    sqlite_where=text("state = 'accepted'"),
)


class Download(Base):
    """One model sent, with the body bytes that left the server; a broken download counts as far as it went."""

    __tablename__ = "downloads"
    id: Mapped[int] = mapped_column(primary_key=True)
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), index=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"))
    phone: Mapped[str | None] = mapped_column(String(64))
    bytes: Mapped[int]
    sent_at: Mapped[float]
