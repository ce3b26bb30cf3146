"""Two reports, round by round."""

from collections.abc import Mapping, Sequence
from typing import Any

from phonograd.device_runtime.base.documents import FieldError, parse, read, written
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.report.records import REPORT_VERSION, Report

# What is compared of each round: sums of these fields.
FIGURES: Mapping[str, Sequence[str]] = {
    "up_bytes": ("up_body_bytes", "up_header_bytes"),
    "down_bytes": ("down_body_bytes", "down_header_bytes"),
    "header_bytes": ("up_header_bytes", "down_header_bytes"),
    "retried_bytes": ("retried_bytes",),
    "model_bytes": ("model_bytes",),
    "sent_link_bytes": ("sent_link_bytes",),
    "up_tcp_bytes": ("up_tcp_bytes",),
    "down_tcp_bytes": ("down_tcp_bytes",),
    "mean_bytes_per_phone": ("mean_bytes_per_phone",),
    "phone_up_p50_bytes": ("phone_up_p50_bytes",),
    "phone_up_p90_bytes": ("phone_up_p90_bytes",),
    "phone_up_max_bytes": ("phone_up_max_bytes",),
    "phone_down_p50_bytes": ("phone_down_p50_bytes",),
    "phone_down_p90_bytes": ("phone_down_p90_bytes",),
    "phone_down_max_bytes": ("phone_down_max_bytes",),
}


def saved_report(text: bytes, name: str) -> dict[str, Any]:
    """The report in a file that `report --json` wrote; `name` is the file's. Raises UsageError."""
    try:
        return checked_report(parse(text), name)
    except FieldError as error:
        raise _no_report(name, error) from error


def checked_report(found: Any, name: str) -> dict[str, Any]:
    """A report of this version, without what an option added to it; `name`: where it is from. Raises UsageError."""
    try:
        fields = found if isinstance(found, dict) else {}
        if (version := fields.get("version")) != REPORT_VERSION:
            raise FieldError(f"version: expected {REPORT_VERSION}, found {version!r}")
        known = {field: fields[field] for field in Report.__struct_fields__ if field in fields}
        report: dict[str, Any] = written(read(Report, known))
        return report
    except FieldError as error:
        raise _no_report(name, error) from error


def compared(report: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """FIGURES of each round that both reports have: `this`, the `other`, their difference and ratio (this / other).

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


def _no_report(name: str, error: FieldError) -> UsageError:
    return UsageError(f"{name}: a report of this version expected (`phonograd report --json`): {error}; write it again")
