"""The ledger's tables: models, rounds, updates, traffic; phones, tokens, the audit log.

Times are UTC, in seconds since 1970; sizes are bytes; hashes are hex SHA-256.

A change here needs a revision in `migrations/versions/`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

from sqlalchemy import BigInteger, ForeignKey, Index, Integer, String, Table, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from phonograd.device_runtime.update.links import LinkCodec

# The states of an update:
# receiving: upload in progress, or complete but not ingested. accepted: counts in its round.
# repeated: an accepted update sent again; not counted twice. rejected: invalid. late: its round was closed.
# expired, terminated: an unfinished upload ended by the server, by the phone. discarded: accepted, then rolled back.
# kept: accepted in a failed round; its file stays until `phonograd discard`.
UpdateState = Literal[
    "receiving", "accepted", "repeated", "rejected", "late", "expired", "terminated", "discarded", "kept"
]
# Why a round ended; failed: its model could not be made.
Ending = Literal["full", "deadline", "rollback", "failed"]
PUBLISHED: tuple[Ending, ...] = ("full", "deadline")  # their model could be downloaded, even if rolled back since
# What a phone's request was for.
TrafficKind = Literal[
    "upload", "model", "link-rows-f32", "link-top-rows", "round", "keys", "shares", "unmasking", "refused",
    "asked-model", "asked-rows-f32", "asked-top-rows",
]  # fmt: skip
# Messages of a masked round, beside the masked updates.
MASKED_KINDS: tuple[TrafficKind, ...] = ("keys", "shares", "unmasking")
# What a masked round waits for, in order: each phone's keys, its draw, its shares, its update, its signature of the
# list, its answer. over: all are there.
StageName = Literal["gathering", "drawing", "sharing", "uploading", "agreeing", "answering", "over"]
# What phones send in the stages, but for updates.
MessageKind = Literal["keys", "draws", "shares", "members", "agreement", "answer"]
# Links instead of a model, by their codec.
LINK_KINDS: Mapping[LinkCodec, TrafficKind] = {"rows-f32": "link-rows-f32", "top-rows": "link-top-rows"}
# Downloads that others send, nginx or the store: their bodies are counted by what was asked for.
ASKED_KINDS: Mapping[TrafficKind, TrafficKind] = {
    "model": "asked-model", "link-rows-f32": "asked-rows-f32", "link-top-rows": "asked-top-rows",
}  # fmt: skip


# Bytes and weights are beyond 32 bits. SQLite's INTEGER has 64, and is the one that counts primary keys itself.
WHOLE = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """Base of the ledger's tables."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {int: WHOLE}


class Model(Base):
    """A model: the exported one, or the result of a round."""

    __tablename__ = "models"
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    round: Mapped[int]  # that first produced it; 0: exported
    parent_sha256: Mapped[str | None] = mapped_column(String(64))
    optimizer_sha256: Mapped[str | None] = mapped_column(String(64))  # the server optimizer's state after this model
    bytes: Mapped[int]
    created_at: Mapped[float]
    link_sha256: Mapped[str | None] = mapped_column(String(64))  # from the parent; None: not smaller, or not for phones
    link_bytes: Mapped[int | None]
    residual_sha256: Mapped[str | None] = mapped_column(String(64))  # what the links up to this model left out
    buffers_sha256: Mapped[str | None] = mapped_column(String(64))  # the noise's memory after it, of dp-ftrl; secret
    buffers_seal: Mapped[str | None] = mapped_column(String(64))  # opens them, hex; None once they were used; secret
    distance: Mapped[float | None]  # L2 norm of the residual, relative to the round's delta


class Round(Base):
    """A round, until `closed_at` is set: open, then (of a slow strategy) closing since `closing_at`.

    All rounds but the last have closed.
    """

    __tablename__ = "rounds"
    number: Mapped[int] = mapped_column(primary_key=True)
    base_sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"))
    # The mean of the models that earlier rounds made of the base, which phones have not got yet: `deploy_every`
    average_sha256: Mapped[str | None] = mapped_column(ForeignKey("models.sha256"))
    result_sha256: Mapped[str | None] = mapped_column(ForeignKey("models.sha256"))  # equal to the base: unchanged
    rules: Mapped[str]  # RoundRules as JSON
    strategy: Mapped[str]  # StrategySettings as JSON
    transfer: Mapped[str | None]  # TransferSettings as JSON; for strategy transfer
    masked: Mapped[str | None]  # MaskedSettings as JSON; of a masked round
    noise_half: Mapped[str | None] = mapped_column(String(64))  # of its key, while it is open: shared_noise.py; secret
    run: Mapped[str | None]  # Run as JSON; of dp-ftrl
    run_step: Mapped[int | None]  # which of the run's rounds, from 1; again if it releases nothing
    population: Mapped[int] = mapped_column(default=0)  # enrolled phones when it was sampled; 0: not sampled
    opened_at: Mapped[float]
    closing_at: Mapped[float | None]
    closed_at: Mapped[float | None]
    epsilon: Mapped[float | None]  # privacy spent up to this round, for private strategies
    epsilon_rdp: Mapped[float | None]  # the same by Renyi divergences, as most papers report it
    ending: Mapped[Ending | None] = mapped_column(String(16))
    reason: Mapped[str | None]  # why it failed
    rolled_back_at: Mapped[float | None]  # the current model does not descend from its result


class Selected(Base):
    """A phone sampled for a round of a private strategy."""

    __tablename__ = "selected"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    phone: Mapped[str] = mapped_column(String(64), primary_key=True)


class Cohort(Base):
    """The stage of a masked round. counts: how many phones got through each stage before it, JSON.

    noise: the multiplier of the noise that its phones added together; None before that is known, 0 without.
    """

    __tablename__ = "cohorts"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    stage: Mapped[StageName] = mapped_column(String(16))
    since: Mapped[float]
    counts: Mapped[str]
    noise: Mapped[float | None]


class Message(Base):
    """What a phone sent in a stage of the open masked round, once and for all; deleted when the round ends."""

    __tablename__ = "messages"
    kind: Mapped[MessageKind] = mapped_column(String(16), primary_key=True)
    phone: Mapped[str] = mapped_column(String(64), primary_key=True)
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"))
    body: Mapped[str]  # JSON, its keys sorted


class Update(Base):
    """One update of one phone, from the creation of its upload on, whatever its outcome."""

    __tablename__ = "updates"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # random; the upload's URL ends in it
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"))
    phone: Mapped[str] = mapped_column(String(64))
    state: Mapped[UpdateState] = mapped_column(String(16), index=True)
    length: Mapped[int]  # of the whole update
    sha256: Mapped[str | None] = mapped_column(String(64))  # as announced by the phone, or computed
    received_bytes: Mapped[int] = mapped_column(default=0)  # bodies of all its requests; above `length`: sent twice
    requests: Mapped[int] = mapped_column(default=0)  # that carried its bytes
    created_at: Mapped[float]
    settled_at: Mapped[float | None]
    codec: Mapped[str | None]
    tokens: Mapped[int | None]
    weight: Mapped[int | None]  # in the round's average
    measures: Mapped[str | None]  # what the strategy measured at ingest, JSON
    base_sha256: Mapped[str | None] = mapped_column(String(64))  # of a late update: its own base model
    status: Mapped[int | None]  # HTTP status of the answer
    reason: Mapped[str | None]
    process: Mapped[str | None] = mapped_column(String(32))  # that has it in its sum, of several servers


UPDATES = cast(Table, Update.__table__)  # its columns; loading objects takes longer

# An upload looks at its phone and its round alone, however many updates the ledger has.
Index("updates_of_phone", Update.phone, Update.state)
Index("updates_of_round", Update.round, Update.state, Update.phone)

# A phone takes part in a round once; enforced by the database too.
Index(
    "one_accepted_update_per_phone",
    Update.round,
    Update.phone,
    unique=True,
    sqlite_where=text("state = 'accepted'"),
    postgresql_where=text("state = 'accepted'"),
)


class Process(Base):
    """A server's process, of several. round, sha256: of its sum that is in the store, if it is (partial_sums.py)."""

    __tablename__ = "processes"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)  # random, new at each start
    seen_at: Mapped[float]
    round: Mapped[int | None]
    sha256: Mapped[str | None] = mapped_column(String(64))


class Chunk(Base):
    """Bytes [start, stop) of an upload in progress, an object of this name in the store; see upload_bytes."""

    __tablename__ = "chunks"
    upload: Mapped[str] = mapped_column(ForeignKey("updates.id"), primary_key=True)
    start: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stop: Mapped[int]
    name: Mapped[str]
    at: Mapped[float]


class Traffic(Base):
    """Bytes on the wire of one phone's requests of one kind in one round; phone '': unknown."""

    __tablename__ = "traffic"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    phone: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[TrafficKind] = mapped_column(String(16), primary_key=True)
    requests: Mapped[int]
    up_header_bytes: Mapped[int]
    up_body_bytes: Mapped[int]
    down_header_bytes: Mapped[int]
    down_body_bytes: Mapped[int]
    up_tcp_bytes: Mapped[int | None]  # of the TCP stream, TLS included; None: not known of all these requests
    down_tcp_bytes: Mapped[int | None]


HTTP_COUNTERS = ("requests", "up_header_bytes", "up_body_bytes", "down_header_bytes", "down_body_bytes")
TCP_COUNTERS = ("up_tcp_bytes", "down_tcp_bytes")


class UpdateSums(Base):
    """Sums over a closed round's updates in one state and of one codec, "" for none; kept while RoundFigures says so.

    late: those of them with a base model of their own.
    """

    __tablename__ = "update_sums"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    state: Mapped[UpdateState] = mapped_column(String(16), primary_key=True)
    codec: Mapped[str] = mapped_column(primary_key=True)
    updates: Mapped[int]
    length: Mapped[int]
    received: Mapped[int]
    requests: Mapped[int]
    late: Mapped[int]


class TrafficSums(Base):
    """Sums over a closed round's traffic of one kind, kept like UpdateSums."""

    __tablename__ = "traffic_sums"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    kind: Mapped[TrafficKind] = mapped_column(String(16), primary_key=True)
    requests: Mapped[int]
    up_header_bytes: Mapped[int]
    up_body_bytes: Mapped[int]
    down_header_bytes: Mapped[int]
    down_body_bytes: Mapped[int]
    up_tcp_bytes: Mapped[int | None]  # None: not known of all
    down_tcp_bytes: Mapped[int | None]


class RoundFigures(Base):
    """What else was read from all rows of a closed round.

    changes: how many of its rows have changed since this row is here. as_of: its value when they were read: the figures
    and the sums are true while both are the same.
    first_at: when the first accepted update was announced. unbounded: phones whose epsilon became infinite in it.
    Percentiles as `sums.phone_percentiles` has them.
    """

    __tablename__ = "round_figures"
    round: Mapped[int] = mapped_column(ForeignKey("rounds.number"), primary_key=True)
    changes: Mapped[int]
    as_of: Mapped[int | None]
    first_at: Mapped[float | None]
    unbounded: Mapped[int | None]
    up_p50: Mapped[int | None]
    up_p90: Mapped[int | None]
    up_max: Mapped[int | None]
    down_p50: Mapped[int | None]
    down_p90: Mapped[int | None]
    down_max: Mapped[int | None]


class Quality(Base):
    """A metric of a model, as an evaluator reported it."""

    __tablename__ = "quality"
    sha256: Mapped[str] = mapped_column(ForeignKey("models.sha256"), primary_key=True)
    metric: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[float]
    reported_at: Mapped[float]


class Phone(Base):
    """An enrolled phone or administrator."""

    __tablename__ = "phones"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[float]
    revoked_at: Mapped[float | None]


class Token(Base):
    """A token, with the SHA-256 of its secret, never the secret.

    Unlike a password, a secret of 256 random bits needs no slow hash.
    """

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)  # the public part of the token
    sha256: Mapped[str] = mapped_column(String(64))
    phone: Mapped[int] = mapped_column(ForeignKey("phones.id"), index=True)
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]  # updated at most every LAST_USED_SECONDS


class Audit(Base):
    """One action, done or refused. `actor`: a phone's name, `address:IP`, or `operator:USER` at the state folder."""

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[float]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    outcome: Mapped[str] = mapped_column(index=True)  # done, refused
    detail: Mapped[str]
