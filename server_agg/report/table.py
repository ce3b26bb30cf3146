"""The report's figures as people read them in a terminal; the report itself has every byte."""

from collections.abc import Mapping
from typing import Any

from phonograd.server_agg.report.sizes import size, three_digits


def report_rows(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """A report's rounds as rows of a table: column title to text."""
    return [
        {
            "round": str(entry["round"]),
            "model": _model_cell(entry),
            "updates": f"{entry['accepted']}/{entry['clients_per_round']}",
            "refused": str(entry["rejected"] + entry["late"]),
            "codecs": ", ".join(f"{name} x{part['updates']}" for name, part in entry["codecs"].items()),
            "a phone": _size(entry["mean_bytes_per_phone"]),
            "model/ours": _ratio(entry["model_ratio"]),
            "paper/ours": _ratio(entry["phone_ratio"]),
            "useful": size(entry["useful_bytes"]),
            "retried": size(entry["retried_bytes"]),
            "refused bytes": size(entry["rejected_bytes"] + entry["late_bytes"]),
            "down": size(entry["down_body_bytes"]),
            "setups": str(entry["setups"]),
            "seconds": _ratio(entry["seconds_to_model"]),
            "epsilon": epsilon_text(entry),
        }
        for entry in report["rounds"]
    ]


def figure_rows(title: str, document: Mapping[str, Any]) -> list[dict[str, object]]:
    """A document's plain figures, a row each; bytes as sizes."""
    return [
        {title: name.replace("_", " "), "value": _size(value) if name.endswith("_bytes") else value}
        for name, value in document.items()
        if not isinstance(value, dict)
    ]


def epsilon_text(entry: Mapping[str, Any]) -> str:
    """Privacy spent up to a round, and for how many phones it is infinite; empty where nothing was spent."""
    finite = "" if entry["epsilon"] is None else f"{entry['epsilon']:.4g}"
    unbounded = entry["epsilon_infinite_phones"]
    infinite = f"infinite for {unbounded} {'phone' if unbounded == 1 else 'phones'}" if unbounded else ""
    return ", ".join(text for text in (finite, infinite) if text)


def _model_cell(entry: Mapping[str, Any]) -> str:
    if entry["rolled_back"]:
        return "rolled back"
    if entry["ending"] == "failed":
        return "failed"
    return str(entry["model_sha256"] or "open")[:12]


def _size(nbytes: float | None) -> str:
    return "" if nbytes is None else size(nbytes)


def _ratio(value: float | None) -> str:
    return "" if value is None else three_digits(value)
