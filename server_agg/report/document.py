"""The cost of each round in bytes and time, beside paper P's figures; the same document from a server or a folder."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from phonograd.device_runtime.base.documents import document_of
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.refusals import UnknownRoundError
from phonograd.server_agg.report.records import (
    REPORT_VERSION,
    CodecBytes,
    CohortStages,
    Figures,
    ModelEntry,
    Paper,
    PhoneCost,
    Report,
    RoundReport,
    SentLinks,
    Totals,
    TrafficFigures,
)
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.storage import ServerStorage, storage_at
from phonograd.server_agg.storage import cohorts, figures, queries, sums
from phonograd.server_agg.storage.ledger import Ledger, ledger_of
from phonograd.server_agg.storage.quality import all_quality
from phonograd.server_agg.storage.state_folder import models_in
from phonograd.server_agg.storage.stores import store_of
from phonograd.server_agg.storage.tables import (
    ASKED_KINDS,
    LINK_KINDS,
    MASKED_KINDS,
    TCP_COUNTERS,
    Model,
    Round,
    Traffic,
    Update,
)

MIB, GIB = 1 << 20, 1 << 30
# Popov et al.: "174.43 Mb" a phone, 10 phones, "1.7 Gb" a round.
PAPER_MIB_PER_PHONE = 174.43
PAPER_GIB_PER_ROUND = 1.70

# Where the received bytes of an update belong by what became of it; of an accepted one, those past its length were
# sent again.
WASTE = {
    "repeated": "retried", "rejected": "rejected", "late": "late", "expired": "unfinished",
    "terminated": "unfinished", "receiving": "unfinished", "discarded": "rejected", "kept": "rejected",
}  # fmt: skip

TRAFFIC = TrafficFigures.__struct_fields__
BYTES = tuple(name for name in TRAFFIC if name.endswith("_bytes") and name not in TCP_COUNTERS)
IN_UPDATES = ("useful_bytes", "retried_bytes", "rejected_bytes", "late_bytes", "unfinished_bytes")
MESSAGES_UP = tuple(f"{kind}_up_bytes" for kind in MASKED_KINDS)


def report_of(ledger: Ledger) -> Report:
    """The report of all rounds. Raises StorageError."""
    figures.refresh(ledger)
    with ledger.reading() as session:
        rounds = list(_round_reports(session))
    sums_: dict[str, Any] = {
        name: sum_of_known([getattr(round_, name) for round_ in rounds]) for name in Figures.__struct_fields__
    }
    totals = Totals(**sums_, rounds_closed=sum(round_.closed_at is not None for round_ in rounds))
    return Report(REPORT_VERSION, Paper(PAPER_MIB_PER_PHONE, PAPER_GIB_PER_ROUND), rounds, totals)


def phones_of(ledger: Ledger, number: int) -> list[PhoneCost]:
    """Return each phone's cost in round `number`: its update's state, codec, reason; bytes by kind as in RoundReport.

    Raises UnknownRoundError.
    """
    with ledger.reading() as session:
        newest = session.scalar(select(func.max(Round.number))) or 0
        if number > newest:
            raise UnknownRoundError(f"round {number}: not here; round {newest} is the newest")
        phones: dict[str, dict[str, Any]] = defaultdict(
            lambda: {"state": None, "codec": None, "reason": None} | dict.fromkeys(TRAFFIC, 0)
        )
        for update in session.scalars(select(Update).where(Update.round == number).order_by(Update.created_at)):
            entry = phones[update.phone]
            if entry["state"] != "accepted":
                entry["state"], entry["codec"], entry["reason"] = update.state, update.codec, update.reason or None
            entry["upload_starts"] += update.requests
            for kind, nbytes in outcome_bytes(update.state, update.length, update.received_bytes):
                entry[f"{kind}_bytes"] += nbytes
        for row in session.scalars(select(Traffic).where(Traffic.round == number)):
            _add_traffic(phones[row.phone], row)
    for entry in phones.values():
        entry["retried_bytes"] += _in_vain(entry)
    return [PhoneCost(phone=name or None, **entry) for name, entry in sorted(phones.items())]


def lineage_of(ledger: Ledger, kept_models: Callable[[], Collection[str]]) -> list[ModelEntry]:
    """Return all models, oldest first: hash, round, parent, bytes, when it was made, whether its file is kept, quality.

    kept_models: the hashes of those whose files are kept.
    """
    with ledger.reading() as session:
        quality, kept = all_quality(session), kept_models()
        return [
            ModelEntry(
                sha256=model.sha256,
                round=model.round,
                parent_sha256=model.parent_sha256,
                bytes=model.bytes,
                created_at=model.created_at,
                kept=model.sha256 in kept,
                quality=quality[model.sha256],
            )
            for model in queries.all_models(session)
        ]


def read_report(place: Path | ServerStorage) -> dict[str, Any]:
    """The report as JSON, without a server; servers may be running. Raises StorageError if there is no ledger."""
    with ledger_of(storage_at(place)) as ledger:
        return document_of(report_of(ledger))


def read_phones(place: Path | ServerStorage, number: int) -> list[dict[str, Any]]:
    """`phones_of` as JSON, as `read_report` reads it."""
    with ledger_of(storage_at(place)) as ledger:
        return [document_of(phone) for phone in phones_of(ledger, number)]


def read_lineage(place: Path | ServerStorage) -> list[dict[str, Any]]:
    """`lineage_of` as JSON, as `read_report` reads it. Raises UsageError for a shared ledger without its store."""
    storage = storage_at(place)
    root, store = storage.ledger if isinstance(storage.ledger, Path) else None, store_of(storage)
    with ledger_of(storage) as ledger:
        return [document_of(model) for model in lineage_of(ledger, lambda: models_in(root, store))]


def projection(report: Mapping[str, Any], phones_per_round: int, rounds: int) -> dict[str, Any] | None:
    """Return what `rounds` rounds of `phones_per_round` phones would cost; None if no update was accepted yet.

    up: all that went over the wire so far, by accepted update, so that today's share of retries and refusals is in it.
    down: the whole of today's model for each phone, once for every `deploy_every` rounds of the last settings; what
    phones of this ledger fetched is no measure of it: one may fetch twice, another have the model already. down_link:
    the newest link instead, for phones that follow every model.
    """
    totals = report["totals"]
    if not totals["accepted"]:
        return None
    uploads = phones_per_round * rounds
    up = (totals["up_body_bytes"] + totals["up_header_bytes"]) / totals["accepted"]
    model, deploy_every = (report["rounds"][-1][name] for name in ("base_bytes", "deploy_every"))
    downloads = phones_per_round * -(-rounds // deploy_every)
    link = next((entry["link_bytes"] for entry in report["rounds"][::-1] if entry["link_bytes"] is not None), None)
    return {
        "phones_per_round": phones_per_round,
        "rounds": rounds,
        "deploy_every": deploy_every,
        "uploads": uploads,
        "up_bytes": round(up * uploads),
        "model_file_bytes": model,
        "down_bytes": model * downloads,
        "down_link_bytes": None if link is None else link * downloads,
        "model_ratio": model / up if up else None,
        "paper_up_bytes": round(PAPER_MIB_PER_PHONE * MIB * uploads),
        "ratio": PAPER_MIB_PER_PHONE * MIB / up if up else None,
    }


def outcome_bytes(state: str, length: int, received: int) -> Iterable[tuple[str, int]]:
    """Received bytes of updates in `state`, told apart by what became of them; sums over many give sums."""
    if state == "accepted":
        return (("useful", length), ("retried", received - length))
    return ((WASTE[state], received),)


def sum_of_known(values: Sequence[int | None]) -> int | None:
    """The sum, None if one is None."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def sent_in_vain(sent: int, outcomes: Iterable[int]) -> int:
    """Return how many of `sent` body bytes are in no update: the connection broke before they were read, or the request
    was answered unread. outcomes: the bytes of updates.
    """
    return max(0, sent - sum(outcomes))


def _in_vain(entry: Mapping[str, int]) -> int:
    return sent_in_vain(entry["up_body_bytes"], (entry[name] for name in (*IN_UPDATES, *MESSAGES_UP)))


def _add_traffic(entry: dict[str, Any], row: Any) -> None:
    entry["requests"] += row.requests
    for name in ("up_header_bytes", "down_body_bytes", "down_header_bytes"):
        entry[name] += getattr(row, name)
    for name in TCP_COUNTERS:
        entry[name] = sum_of_known([entry[name], getattr(row, name)])
    if row.kind in ("upload", *MASKED_KINDS):
        entry["up_body_bytes"] += row.up_body_bytes
    if row.kind in MASKED_KINDS:
        entry[f"{row.kind}_up_bytes"] += row.up_body_bytes
        entry[f"{row.kind}_down_bytes"] += row.down_body_bytes
    if row.kind in ASKED_KINDS.values():
        entry["redirected_bytes"] += row.down_body_bytes
    if row.kind in ("model", ASKED_KINDS["model"]):
        entry["model_bytes"] += row.down_body_bytes
    elif row.kind in (*ASKED_KINDS, *ASKED_KINDS.values()):
        entry["sent_link_bytes"] += row.down_body_bytes


def _round_reports(session: Session) -> Iterable[RoundReport]:
    groups: dict[int, list[Any]] = defaultdict(list)
    for group in sums.update_sums(session, by_round=True):
        groups[group.round].append(group)
    traffic: dict[int, list[Any]] = defaultdict(list)
    for row in sums.traffic_sums(session, by_round=True):
        traffic[row.round].append(row)
    quality = all_quality(session)
    models = {model.sha256: model for model in queries.all_models(session)}
    stages, of_rounds, phones = cohorts.all_cohorts(session), figures.of_rounds(session), 0
    deployed = queries.bases_after(session, 0)
    for round_ in queries.all_rounds(session):
        read = of_rounds[round_.number]
        phones += read.unbounded or 0
        facts: dict[str, Any] = {"base_bytes": models[round_.base_sha256].bytes, "epsilon_infinite_phones": phones}
        cohort = stages.get(round_.number)
        facts["cohort"] = None if cohort is None else CohortStages(cohort.stage, json.loads(cohort.counts))
        facts |= {f"phone_{name}_bytes": getattr(read, name) for name in sums.OF_PHONES}
        closed_at, first_at = round_.closed_at, read.first_at
        facts["seconds_to_model"] = None if closed_at is None or first_at is None else closed_at - first_at
        made = models.get(round_.result_sha256 or "") if round_.result_sha256 != round_.base_sha256 else None
        facts["deployed"] = None if made is None else made.sha256 in deployed
        yield _round_report(round_, made, facts, groups[round_.number], traffic[round_.number], quality)


def _sent_links(traffic: list[Any]) -> dict[str, SentLinks]:
    sent: dict[str, SentLinks] = {}
    for codec, kind in LINK_KINDS.items():
        if rows := [row for row in traffic if row.kind in (kind, ASKED_KINDS[kind])]:
            sent[codec] = SentLinks(sum(row.requests for row in rows), sum(row.down_body_bytes for row in rows))
    return sent


def _round_report(
    row: Round,
    made: Model | None,
    facts: Mapping[str, Any],
    groups: list[Any],
    traffic: list[Any],
    quality: Mapping[str, dict[str, float]],
) -> RoundReport:
    """Return a round's report. made: the round's model; None if it is the base or not made yet."""
    counted: dict[str, Any] = dict.fromkeys(Figures.__struct_fields__, 0)
    for group in groups:
        name = group.state if group.state in ("accepted", "repeated", "rejected", "late") else "unfinished"
        counted["rejected" if group.state in ("discarded", "kept") else name] += group.updates
        counted["upload_starts"] += group.requests
        for kind, nbytes in outcome_bytes(group.state, group.length, group.received):
            counted[f"{kind}_bytes"] += nbytes
    for entry in traffic:
        _add_traffic(counted, entry)
    counted["retried_bytes"] += _in_vain(counted)
    taken = [group for group in groups if group.state == "accepted"]
    counted["late_folded"] = sum(group.late for group in taken)
    accepted, useful, closed_at = counted["accepted"], counted["useful_bytes"], row.closed_at
    strategy, rules = StrategySettings.from_json(row.strategy), RoundRules.from_json(row.rules)
    return RoundReport(
        round=row.number,
        base_sha256=row.base_sha256,
        model_sha256=row.result_sha256,
        strategy=strategy.strategy,
        weighting=strategy.weighting,
        clients_per_round=rules.clients_per_round,
        deploy_every=rules.deploy_every,
        opened_at=row.opened_at,
        closing_at=row.closing_at,
        closed_at=closed_at,
        ending=row.ending,
        reason=row.reason,
        rolled_back=row.rolled_back_at is not None,
        codecs={str(group.codec): CodecBytes(updates=group.updates, bytes=group.length) for group in taken},
        sent_links=_sent_links(traffic),
        mean_bytes_per_phone=useful / accepted if accepted else None,
        model_ratio=facts["base_bytes"] * accepted / useful if accepted else None,
        phone_ratio=PAPER_MIB_PER_PHONE * MIB * accepted / useful if accepted else None,
        round_ratio=PAPER_GIB_PER_ROUND * GIB / useful if closed_at and useful else None,
        epsilon=row.epsilon,
        epsilon_rdp=row.epsilon_rdp,
        neighbours=None if row.epsilon is None else NEIGHBOURS,
        publish=rules.publish,
        link_bytes=None if made is None else made.link_bytes,
        distance=None if made is None else made.distance,
        quality=quality.get(row.result_sha256 or "", {}),
        **facts,
        **counted,
    )
