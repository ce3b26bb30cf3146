"""Calculations from reports: costs at a price, a limit on uploads, and a comparison round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

from phonograd.device_runtime.base.documents import FieldError, document_of, parse, read
from phonograd.device_runtime.base.errors import UploadLimitError, UsageError
from phonograd.server_agg.report.records import REPORT_VERSION, Report
from phonograd.server_agg.report.text import size

GB, MB = 10**9, 10**6

# The compared figures of a round: sums of these fields.
FIGURES: Mapping[str, Sequence[str]] = {
    "up_bytes": ("up_body_bytes", "up_header_bytes"),
    "down_bytes": ("down_body_bytes", "down_header_bytes"),
    "header_bytes": ("up_header_bytes", "down_header_bytes"),
    **{
        name: (name,)
        for name in (
            *("retried_bytes", "model_bytes", "sent_link_bytes", "up_tcp_bytes", "down_tcp_bytes"),
            *("mean_bytes_per_phone", "phone_up_p50_bytes", "phone_up_p90_bytes", "phone_up_max_bytes"),
            *("phone_down_p50_bytes", "phone_down_p90_bytes", "phone_down_max_bytes"),
        )
    },
}


def price_report(
    report: Mapping[str, Any], per_gb: float, projected: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the cost of each round, all rounds and a projection, at `per_gb` for 10^9 bytes, up or down.

    Counts what TCP carried, TLS included, where that is known, else the bytes of HTTP.
    """

    def cost(up: int, down: int) -> dict[str, float]:
        prices = {"up": up / GB * per_gb, "down": down / GB * per_gb, "both": (up + down) / GB * per_gb}
        return {"up_bytes": up, "down_bytes": down, **prices}

    def cost_of(entry: Mapping[str, Any]) -> dict[str, float]:
        return cost(_paid_bytes(entry, "up"), _paid_bytes(entry, "down"))

    costs: dict[str, Any] = {
        "per_gb": per_gb,
        "rounds": [{"round": entry["round"], **cost_of(entry)} for entry in report["rounds"]],
        "totals": cost_of(report["totals"]),
    }
    if projected is not None:
        up, down = projected["up_bytes"], projected["down_bytes"]
        costs["projection"] = cost(up, down)
        if (links := projected["down_link_bytes"]) is not None:
            costs["projection_with_links"] = cost(up, links)
    return costs


def check_uploads(report: Mapping[str, Any], most: float) -> None:
    """Raise UploadLimitError if a phone sent more than `most` bytes in a round, headers and retries included.

    Looks at all phones that sent some of an update, whatever became of it: somebody paid for those bytes too.
    """
    above = [entry for entry in report["rounds"] if (entry["phone_up_max_bytes"] or 0) > most]
    if above:
        worst = max(above, key=lambda entry: int(entry["phone_up_max_bytes"]))
        rounds = f"{len(above)} of {len(report['rounds'])} rounds exceed it"
        raise UploadLimitError(
            f"round {worst['round']}: a phone sent {size(worst['phone_up_max_bytes'])}, expected at most {size(most)} "
            f"(`max_upload_mb`); {rounds}; `phonograd report --round {worst['round']}` shows each phone"
        )


def checked_report(found: Any, name: str) -> dict[str, Any]:
    """A report of this version, without what an option added to it; `name`: where it is from. Raises UsageError.

    found: the report, or the bytes of a file that `report --json` wrote.
    """
    try:
        document = parse(found) if isinstance(found, bytes) else found
        fields = document if isinstance(document, dict) else {}
        if (version := fields.get("version")) != REPORT_VERSION:
            raise FieldError(f"version: expected {REPORT_VERSION}, found {version!r}")
        known = {field: fields[field] for field in Report.__struct_fields__ if field in fields}
        report: dict[str, Any] = document_of(read(Report, known))
        return report
    except FieldError as error:
        raise UsageError(
            f"{name}: a report of this version expected (`phonograd report --json`): {error}; write it again"
        ) from error


def compare_reports(report: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Compare FIGURES of each round that both reports have: `this`, the `other`, difference and ratio (this / other).

    A figure that a report does not have is None, as is a ratio to 0. only_this, only_other: rounds that one report has.
    """
    ours, theirs = ({entry["round"]: entry for entry in each["rounds"]} for each in (report, other))
    return {
        "rounds": [
            {"round": number} | {name: _pair(fields, ours[number], theirs[number]) for name, fields in FIGURES.items()}
            for number in sorted(ours.keys() & theirs.keys())
        ],
        "only_this": sorted(ours.keys() - theirs.keys()),
        "only_other": sorted(theirs.keys() - ours.keys()),
    }


def _pair(fields: Sequence[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float | None]:
    this, other = _sum(fields, ours), _sum(fields, theirs)
    known = this is not None and other is not None
    return {
        "this": this,
        "other": other,
        "difference": this - other if known else None,
        "ratio": this / other if known and other else None,
    }


def _sum(fields: Sequence[str], entry: Mapping[str, Any]) -> Any:
    values = [entry[field] for field in fields]
    return None if None in values else sum(values)


def _paid_bytes(entry: Mapping[str, Any], direction: str) -> int:
    of_tcp = entry[f"{direction}_tcp_bytes"]
    nbytes = entry[f"{direction}_body_bytes"] + entry[f"{direction}_header_bytes"] if of_tcp is None else of_tcp
    elsewhere = entry["redirected_bytes"] if direction == "down" and of_tcp is not None else 0  # of other programs' TCP
    return int(nbytes + elsewhere)
