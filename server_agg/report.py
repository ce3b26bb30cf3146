"""What each round cost in bytes and time, beside paper P's figures; the same document from a server or a folder."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server_agg.storage.ledger import Ledger
from server_agg.storage.state_folder import LEDGER
from server_agg.storage.tables import Download, Round, Upload

REPORT_VERSION = 1
MIB, GIB = 1 << 20, 1 << 30
# Popov et al.: "174.43 Mb" a phone, 10 phones, "1.7 Gb" a round.
PAPER_MIB_PER_PHONE = 174.43
PAPER_GIB_PER_ROUND = 1.70


@dataclass(frozen=True)
class CodecBytes:
    """Accepted updates of one codec and the bytes of their bodies."""

    updates: int
    bytes: int


@dataclass(frozen=True)
class RoundReport:
    """One round. Sizes in bytes, times in seconds (since 1970 for `_at`).

    up_body_bytes, up_header_bytes: all that phones sent, refused and repeated uploads too; accepted_bytes: bodies of
    accepted updates. down_bytes: model bytes sent. seconds_to_model: from the first byte of the first accepted update
    to the averaged model. phone_ratio, round_ratio: how many times less than paper P's phone and round upload.
    """

    round: int
    base_sha256: str
    model_sha256: str | None
    weighting: str
    clients_per_round: int
    opened_at: float
    closed_at: float | None
    accepted: int
    repeated: int
    rejected: int
    accepted_bytes: int
    up_body_bytes: int
    up_header_bytes: int
    downloads: int
    down_bytes: int
    codecs: dict[str, CodecBytes]
    mean_bytes_per_phone: float | None
    seconds_to_model: float | None
    phone_ratio: float | None
    round_ratio: float | None


SUMMED = (
    "accepted", "repeated", "rejected", "accepted_bytes", "up_body_bytes", "up_header_bytes", "downloads", "down_bytes",
)  # fmt: skip


def report_of(ledger: Ledger) -> dict[str, Any]:
    """The report as a JSON document: version, paper, rounds (see RoundReport), totals. Raises StorageError."""
    with ledger.reading() as session:
        rounds = [_round_report(session, row) for row in session.scalars(select(Round).order_by(Round.number))]
    totals: dict[str, int] = {name: sum(getattr(round_, name) for round_ in rounds) for name in SUMMED}
    totals["rounds_closed"] = sum(round_.closed_at is not None for round_ in rounds)
    return {
        "version": REPORT_VERSION,
        "paper": {"mib_per_phone": PAPER_MIB_PER_PHONE, "gib_per_round": PAPER_GIB_PER_ROUND},
        "rounds": [asdict(round_) for round_ in rounds],
        "totals": totals,
    }


def read_report(state: Path) -> dict[str, Any]:
    """The report of a state folder, whether a server uses it or not. Raises StorageError if it holds no ledger."""
    ledger = Ledger(state / LEDGER, create=False)
    try:
        return report_of(ledger)
    finally:
        ledger.close()


def report_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """A report's rounds as rows of a table: column title to text; for a terminal."""
    return [
        {
            "round": str(entry["round"]),
            "model": (entry["model_sha256"] or "open")[:12],
            "updates": f"{entry['accepted']}/{entry['clients_per_round']}",
            "refused": str(entry["rejected"]),
            "codecs": ", ".join(f"{name} x{part['updates']}" for name, part in entry["codecs"].items()),
            "MiB/phone": _number(entry["mean_bytes_per_phone"], MIB),
            "paper/ours": _number(entry["phone_ratio"]),
            "up MiB": _number(entry["up_body_bytes"] + entry["up_header_bytes"], MIB),
            "down MiB": _number(entry["down_bytes"], MIB),
            "seconds": _number(entry["seconds_to_model"]),
        }
        for entry in report["rounds"]
    ]


def report_csv(report: Mapping[str, Any]) -> str:
    """A report's rounds as CSV (RFC 4180): a header line, a line a round, codecs as `name:updates:bytes` by space."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(RoundReport.__dataclass_fields__))
    writer.writeheader()
    for entry in report["rounds"]:
        codecs = " ".join(f"{name}:{part['updates']}:{part['bytes']}" for name, part in entry["codecs"].items())
        writer.writerow({**entry, "codecs": codecs})
    return out.getvalue()


def _number(value: float | None, unit: int = 1) -> str:
    return "" if value is None else f"{value / unit:.2f}"


def _round_report(session: Session, row: Round) -> RoundReport:
    uploads = session.execute(
        select(
            Upload.state,
            Upload.codec,
            func.count(),
            func.sum(Upload.body_bytes),
            func.sum(Upload.header_bytes),
            func.min(Upload.received_at - Upload.seconds),
        )
        .where(Upload.round == row.number)
        .group_by(Upload.state, Upload.codec)
        .order_by(Upload.codec)
    ).all()
    downloads, down_bytes = session.execute(
        select(func.count(), func.coalesce(func.sum(Download.bytes), 0)).where(Download.round == row.number)
    ).one()
    taken = [group for group in uploads if group[0] == "accepted"]
    accepted, accepted_bytes = _total(taken, 2), _total(taken, 3)
    closed_at = row.closed_at
    return RoundReport(
        round=row.number,
        base_sha256=row.base_sha256,
        model_sha256=row.result_sha256,
        weighting=row.weighting,
        clients_per_round=row.clients_per_round,
        opened_at=row.opened_at,
        closed_at=closed_at,
        accepted=accepted,
        repeated=_total([group for group in uploads if group[0] == "repeated"], 2),
        rejected=_total([group for group in uploads if group[0] == "rejected"], 2),
        accepted_bytes=accepted_bytes,
        up_body_bytes=_total(uploads, 3),
        up_header_bytes=_total(uploads, 4),
        downloads=downloads,
        down_bytes=down_bytes,
        codecs={str(group[1]): CodecBytes(updates=group[2], bytes=group[3]) for group in taken},
        mean_bytes_per_phone=accepted_bytes / accepted if accepted else None,
        seconds_to_model=closed_at - min(group[5] for group in taken) if closed_at and taken else None,
        phone_ratio=PAPER_MIB_PER_PHONE * MIB * accepted / accepted_bytes if accepted else None,
        round_ratio=PAPER_GIB_PER_ROUND * GIB / accepted_bytes if closed_at and accepted_bytes else None,
    )


def _total(groups: Sequence[Any], column: int) -> int:
    return sum(int(group[column]) for group in groups)
