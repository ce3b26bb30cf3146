"""The ledger's tables: rounds and what came in them; phones, their tokens, the audit log.

Times are UTC, in seconds since 1970; sizes are bytes; hashes are hex SHA-256.

A change here needs a step in `migrations.py`.
"""

from typing import Literal

from sqlalchemy import ForeignKey, Index, String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# What can become of an update:
# receiving: on its way, or all here and not yet decided on. accepted: counts in its round.
# repeated: an accepted update sent again, answered and not counted. rejected: refused for what it is.
# late: of a round that is over. broken: its connection broke and it can't be resumed.
# expired, terminated: an unfinished upload given up by the server, by the phone. discarded: accepted, then rolled back.
# kept: accepted in a round that failed; its file stays until a command discards it.
UpdateState = Literal[
    "receiving", "accepted", "repeated", "rejected", "late", "broken", "expired", "terminated", "discarded", "kept"
]
# Why a round ended; failed: its model could not be made.
Ending = Literal["full", "deadline", "rollback", "failed"]
PUBLISHED: tuple[Ending, ...] = ("full", "deadline")  # with a model that anybody may have fetched, rolled back or not
# What a phone's request was for.
TrafficKind = Literal["upload", "model", "round", "refused"]


class Base(DeclarativeBase):
    """Base of the ledger's tables."""


class Model(Base):
    """A model the server has sent out: the exported one, or the result of a round."""

    __tablename__ = "models"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    round: Mapped[int]  # that made it first; 0: exported
    parent_sha256: Mapped[str | None] = mapped_column(String(64))
    optimizer_sha256: Mapped[str | None] = mapped_column(String(64))  # the server optimiser's state that goes with it
    bytes: Mapped[int]
    created_at: Mapped[float]


class Round(Base):
    """A round: open while `closed_at` is null. At most one is open."""

    __tablename__ = "rounds"
    number: Mapped[int] = mapped_column(primary_key=True)
    base_sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"))
    result_sha256: Mapped[str | None] = mapped_column(ForeignKey("models.sha256"))  # the base itself: nothing changed
    rules: Mapped[str]  # RoundRules as JSON
    strategy: Mapped[str]  # StrategySettings as JSON
    population: Mapped[int] = mapped_column(default=0)  # phones that could have been sampled
    opened_at: Mapped[float]
    closed_at: Mapped[float | None]
    epsilon: Mapped[float | None]  # privacy spent up to its end, where the strategy counts it
    epsilon_rdp: Mapped[float | None]  # the same by Renyi divergences, which papers report
    ending: Mapped[Ending | None] = mapped_column(String(16))
    reason: Mapped[str | None]  # why it failed
    rolled_back_at: Mapped[float | None]  # its result is no ancestor of the current model any more


class Selected(Base):
    """A phone that the server drew for a round, where the strategy samples."""

    __tablename__ = "selected"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    phone: Mapped[str] = mapped_column(String(64), primary_key=True)


class Update(Base):
    """One update of one phone, from the announcement of its upload on, whatever became of it."""

    __tablename__ = "updates"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # random; the upload's URL ends in it
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), index=True)
    phone: Mapped[str] = mapped_column(String(64))
    state: Mapped[UpdateState] = mapped_column(String(16), index=True)
    length: Mapped[int]  # of the whole update
    sha256: Mapped[str | None] = mapped_column(String(64))  # announced, or found
    resumable: Mapped[bool]
    received_bytes: Mapped[int] = mapped_column(default=0)  # bodies of all its requests; more than `length`: sent again
    requests: Mapped[int] = mapped_column(default=0)  # that carried bytes of it
    created_at: Mapped[float]
    settled_at: Mapped[float | None]
    codec: Mapped[str | None]
    tokens: Mapped[int | None]
    weight: Mapped[int | None]  # in the round's average, if accepted
    measures: Mapped[str | None]  # what the strategy measured at ingest, JSON
    base_sha256: Mapped[str | None] = mapped_column(String(64))  # another than the round's: a late one folded in
    status: Mapped[int | None]  # HTTP status it was answered with
    reason: Mapped[str | None]


# A phone takes part in a round once; held by the database, not by code alone.
Index(
    "one_accepted_update_per_phone",
    Update.round,
    Update.phone,
    unique=True,
    sqlite_where=text("state = 'accepted'"),
)


class Traffic(Base):
    """Bytes on the wire of one phone's requests of one kind during one round; phone '': not named."""

    __tablename__ = "traffic"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    phone: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[TrafficKind] = mapped_column(String(16), primary_key=True)
    requests: Mapped[int]
    up_header_bytes: Mapped[int]
    up_body_bytes: Mapped[int]
    down_header_bytes: Mapped[int]
    down_body_bytes: Mapped[int]


TRAFFIC_COUNTERS = ("requests", "up_header_bytes", "up_body_bytes", "down_header_bytes", "down_body_bytes")


class Quality(Base):
    """What an evaluator found a model to be worth."""

    __tablename__ = "quality"
    sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"), primary_key=True)
    metric: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[float]
    reported_at: Mapped[float]


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
    """One thing done or refused. `actor`: a phone's name, `address:IP`, or `operator:USER` at the state folder."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    outcome: Mapped[str] = mapped_column(index=True)  # done, refused
    detail: Mapped[str]
