"""The report as text, of table rows with sizes in MB, and as CSV (RFC 4180). The document itself has exact bytes."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from phonograd.server_agg.aggregation.settings import PRIVATE_STRATEGIES
from phonograd.server_agg.report.records import Figures, PhoneCost, RoundReport, TrafficFigures

NOTHING_SPENT = "nothing in this round"  # no update is in its model, or it has none
FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet's formulas begin with
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # in powers of 1000

PERCENTILES = tuple((way, name) for way in ("up", "down") for name in ("p50", "p90", "max"))
_DEPLOYED = {True: "yes", False: "no", None: ""}
IN_BYTE_ROWS = (
    *("useful_bytes", "retried_bytes", "rejected_bytes", "late_bytes", "model_bytes", "sent_link_bytes"),
    *("redirected_bytes", "up_body_bytes", "up_header_bytes", "down_body_bytes", "down_header_bytes"),
    *("up_tcp_bytes", "down_tcp_bytes"),
)
COMPARED = {"up": "up_bytes", "down": "down_bytes", "per phone": "mean_bytes_per_phone"}


def report_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """A report's rounds as table rows: column title to text. Only where some had no model for phones they say which."""
    several = any(entry["deploy_every"] > 1 for entry in report["rounds"])
    return [
        {
            "round": str(entry["round"]),
            "model": _model_cell(entry),
            **({"deployed": _DEPLOYED[entry["deployed"]]} if several else {}),
            "updates": f"{entry['accepted']}/{entry['clients_per_round']}",
            "refused": str(entry["rejected"] + entry["late"]),
            "codecs": ", ".join(f"{name} x{part['updates']}" for name, part in entry["codecs"].items()),
            "per phone": _size(entry["mean_bytes_per_phone"]),
            "model/ours": _ratio(entry["model_ratio"]),
            "paper/ours": _ratio(entry["phone_ratio"]),
            "link": _size(entry["link_bytes"]),
            "link error": "" if entry["distance"] is None else f"{100 * entry['distance']:.3g} %",
            "upload starts": str(entry["upload_starts"]),
            "seconds": _ratio(entry["seconds_to_model"]),
            "epsilon": epsilon_text(entry),
        }
        for entry in report["rounds"]
    ]


def next_model_text(report: Mapping[str, Any]) -> str:
    """Say when phones get the next model; "" if they get one after each round."""
    *ended, open_ = report["rounds"]
    same = [entry for entry in ended if entry["base_sha256"] == open_["base_sha256"] and not entry["rolled_back"]]
    place = 1 + sum(entry["deployed"] is not None for entry in same)
    rounds = max(place, open_["deploy_every"])
    after = open_["round"] + rounds - place
    how = f"round {place} of {rounds} from this model; phones get the next one after round {after}"
    return "" if rounds == 1 else how


def byte_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The bytes of a report's rounds, and of all, as table rows: up and down with headers, and what is in them."""
    totals = report["totals"]
    links = {"": {"bytes": totals["sent_link_bytes"]}} if totals["sent_link_bytes"] else {}
    return [
        {
            "round": str(entry["round"]),
            "up": size(entry["up_body_bytes"] + entry["up_header_bytes"]),
            "useful": size(entry["useful_bytes"]),
            "retried": size(entry["retried_bytes"]),
            "refused": size(entry["rejected_bytes"] + entry["late_bytes"]),
            "down": size(entry["down_body_bytes"] + entry["down_header_bytes"]),
            "models": size(entry["model_bytes"]),
            "links": ", ".join(f"{name} {size(part['bytes'])}".strip() for name, part in entry["sent_links"].items()),
            "redirected": size(entry["redirected_bytes"]),
            "headers": size(entry["up_header_bytes"] + entry["down_header_bytes"]),
            "TCP up": _size(entry["up_tcp_bytes"]),
            "TCP down": _size(entry["down_tcp_bytes"]),
        }
        for entry in (*report["rounds"], {**totals, "round": "all", "sent_links": links})
    ]


def phone_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The percentiles over a round's phones as table rows."""
    return [
        {"round": str(entry["round"])}
        | {f"{way} {name}": _size(entry[f"phone_{way}_{name}_bytes"]) for way, name in PERCENTILES}
        for entry in report["rounds"]
    ]


def cost_rows(costs: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return `price_report`'s figures as table rows."""
    parts = {str(entry["round"]): entry for entry in costs["rounds"]} | {"all": costs["totals"]}
    parts |= {name.replace("_", " "): costs[name] for name in costs if name.startswith("projection")}
    return [
        {
            "round": name,
            "up": size(part["up_bytes"]),
            "down": size(part["down_bytes"]),
            "cost up": part["up"],
            "cost down": part["down"],
            "cost": part["both"],
        }
        for name, part in parts.items()
    ]


def comparison_rows(comparison: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return `compare_reports`' main figures as table rows."""
    return [{"round": str(entry["round"])} | _compared_cells(entry) for entry in comparison["rounds"]]


def _compared_cells(entry: Mapping[str, Any]) -> dict[str, str]:
    cells: dict[str, str] = {}
    for title, name in COMPARED.items():
        pair = entry[name]
        cells |= {title: _size(pair["this"]), f"other {title}": _size(pair["other"])}
        cells |= {f"{title} +/-": _size(pair["difference"]), f"{title} ratio": _ratio(pair["ratio"])}
    return cells


def figure_rows(title: str, document: Mapping[str, Any]) -> list[dict[str, object]]:
    """A document's scalar values that are not zero, one row each; bytes as sizes."""
    return [
        {title: name.replace("_", " "), "value": _size(value) if name.endswith("_bytes") else value}
        for name, value in document.items()
        if value and not isinstance(value, dict)
    ]


def has_epsilon(entry: Mapping[str, Any]) -> bool:
    """Return whether a round spends privacy that is counted: its strategy adds noise, or its phones did."""
    return entry["strategy"] in PRIVATE_STRATEGIES or entry["epsilon"] is not None


def epsilon_text(entry: Mapping[str, Any]) -> str:
    """The epsilon spent up to a round, and for how many phones it is infinite; empty if none is counted or it is still
    open.
    """
    if not has_epsilon(entry):
        return ""
    finite = "" if entry["epsilon"] is None else f"{entry['epsilon']:.4g}"
    unbounded = entry["epsilon_infinite_phones"]
    infinite = f"infinite for {unbounded} {'phone' if unbounded == 1 else 'phones'}" if unbounded else ""
    known = ", ".join(text for text in (finite, infinite) if text)
    return known or ("" if entry["closed_at"] is None else NOTHING_SPENT)


def size(nbytes: float) -> str:
    """Bytes with three digits in the fitting unit: 183 MB."""
    power = unit_power(nbytes)
    return f"{three_digits(nbytes / 1000**power)} {UNITS[power]}"


def unit_power(nbytes: float) -> int:
    """The power of 1000 of the unit that fits `nbytes`."""
    power = 0
    while power < len(UNITS) - 1 and abs(nbytes) >= 999.5 * 1000**power:
        power += 1
    return power


def three_digits(value: float) -> str:
    """Three digits, at most two of them decimals."""
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def _model_cell(entry: Mapping[str, Any]) -> str:
    if entry["rolled_back"]:
        return "rolled back"
    if entry["ending"] == "failed":
        return "failed"
    until_then = "open" if entry["closing_at"] is None else "closing"
    return str(entry["model_sha256"] or until_then)[:12]


def _size(nbytes: float | None) -> str:
    return "" if nbytes is None else size(nbytes)


def _ratio(value: float | None) -> str:
    return "" if value is None else three_digits(value)


def report_csv(report: Mapping[str, Any]) -> str:
    """A line a round.

    Codecs are `name:updates:bytes`, links sent `name:requests:bytes`, by space; a cohort is its stage, then
    `stage:phones` of those before it.
    """
    return _csv(RoundReport, map(_flat, report["rounds"]))


def phones_csv(phones: Iterable[Mapping[str, Any]]) -> str:
    """A line a phone."""
    return _csv(PhoneCost, phones)


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    codecs = (f"{name}:{part['updates']}:{part['bytes']}" for name, part in entry["codecs"].items())
    links = (f"{name}:{part['requests']}:{part['bytes']}" for name, part in entry["sent_links"].items())
    quality = (f"{metric}:{value}" for metric, value in entry["quality"].items())
    cohort = entry["cohort"] or {"stage": "", "through": {}}
    stages = (cohort["stage"], *(f"{stage}:{phones}" for stage, phones in cohort["through"].items()))
    texts = {"codecs": codecs, "sent_links": links, "quality": quality, "cohort": stages}
    return {**entry, **{name: " ".join(parts) for name, parts in texts.items()}}


def _as_text(value: object) -> object:
    """A cell that a spreadsheet takes for no formula: phones and metrics are named by others."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


def _csv(kind: type[TrafficFigures], lines: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    figures = {*Figures.__struct_fields__}
    columns = sorted(kind.__struct_fields__, key=figures.__contains__)  # first what the line is about
    writer = csv.DictWriter(out, fieldnames=columns)
    writer.writeheader()
    writer.writerows({name: _as_text(value) for name, value in line.items()} for line in lines)
    return out.getvalue()
