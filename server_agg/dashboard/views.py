"""The dashboard's view models: selected from the report and the open round, with no figures of their own.

Reports and their rounds are the documents of phonograd.server_agg.report.document.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS
from phonograd.server_agg.dashboard import charts, formats
from phonograd.server_agg.dashboard.charts import NUMBERS, SIZES, TIMES, Chart, Reference, Series
from phonograd.server_agg.report.document import (
    GIB,
    MIB,
    PAPER_GIB_PER_ROUND,
    PAPER_MIB_PER_PHONE,
    TRAFFIC,
    sum_of_known,
)
from phonograd.server_agg.report.text import has_epsilon
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.rounds.uploads import UploadRecord

# Limits of charts and lists; the tables have all rounds.
MAX_CHART_ROUNDS = 300
MAX_UPLOADS_SHOWN = 20
MAX_CHART_METRICS = 6
MAX_TABLE_METRICS = 3
CODEC_COLOURS = 8
OUTCOMES = ("useful", "retried", "rejected", "late", "unfinished")
PAPER_PHONE = f"paper P's {formats.size(PAPER_MIB_PER_PHONE * MIB)} a phone"
PAPER_ROUND = f"paper P's {formats.size(PAPER_GIB_PER_ROUND * GIB)} a round"

Item = TypeVar("Item")
Report = Mapping[str, Any]


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One page of a list: its items, its number from 1, and the total numbers of pages and items."""

    items: Sequence[Item]
    number: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[Item], number: int, length: int) -> "Page[Item]":
        """Page `number` of `items`, or the last page if there are fewer."""
        pages = max(1, -(-len(items) // length))
        number = min(max(1, number), pages)
        return cls(items[(number - 1) * length : number * length], number, pages, len(items))


class Tile(NamedTuple):
    """A figure with its name and a note."""

    name: str
    figure: str
    remark: str


def live(round_: OpenRound, unfinished: Sequence[UploadRecord], now: float) -> dict[str, Any]:
    """The open round at `now`, in seconds since 1970, and its uploads in progress: the first, and the number of all.

    closes_in: seconds until the deadline, negative after it; None without one.
    """
    closes_in = None if round_.closes_at is None else round_.closes_at - now
    uploads = {"uploads": unfinished[:MAX_UPLOADS_SHOWN], "in_progress": len(unfinished)}
    return {"round": round_, **uploads, "closes_in": closes_in}


def tiles(report: Report, epsilon_budget: float | None) -> list[Tile]:
    """The totals on the overview. epsilon_budget: the strategy's limit, or None."""
    totals, closed = report["totals"], _closed_rounds(report)
    accepted, useful = totals["accepted"], totals["useful_bytes"]
    up = sum(totals[f"{outcome}_bytes"] for outcome in OUTCOMES)
    mean = useful / accepted if accepted else None
    comparison = "no update accepted yet"
    if mean:
        whole = sum(entry["base_bytes"] * entry["accepted"] for entry in report["rounds"])
        comparison = (
            f"{_than(whole, useful)} than the whole model; {_than(PAPER_MIB_PER_PHONE * MIB, mean)} "
            f"than paper P's {formats.size(PAPER_MIB_PER_PHONE * MIB)} of a different model"
        )
    refused = totals["rejected"] + totals["late"]
    shown = [
        Tile(
            "Rounds",
            formats.count(totals["rounds_closed"]),
            f"closed; {formats.count(totals['upload_starts'])} upload starts",
        ),
        Tile("Updates", formats.count(accepted), f"accepted; {formats.count(refused)} rejected or late"),
        Tile("Per phone", formats.size(mean), comparison),
        Tile(
            "Uploaded",
            formats.size(up),
            f"{100 * useful / up:.1f}\N{NO-BREAK SPACE}% of it useful" if up else "nothing yet",
        ),
        Tile(
            "Downloaded",
            formats.size(totals["down_body_bytes"] + totals["down_header_bytes"]),
            f"{formats.size(totals['model_bytes'])} of models, {formats.size(totals['sent_link_bytes'])} of links",
        ),
    ]
    if private := [entry for entry in closed if has_epsilon(entry)]:
        last = next((entry for entry in reversed(private) if entry["epsilon"] is not None), private[-1])
        budget = f" of {formats.number(epsilon_budget)}" if epsilon_budget else ""
        unbounded = report["rounds"][-1]["epsilon_infinite_phones"]
        remark = f"spent{budget}, up to round {last['round']}: {NEIGHBOURS}"
        if unbounded:
            remark += f"; infinite for {formats.count(unbounded)} phones of rounds without noise"
        spent = "∞" if unbounded and last["epsilon"] is None else formats.number(last["epsilon"])
        shown.append(Tile("Privacy", f"ε {spent}", remark))
    for metric in _metrics(closed)[:2]:
        last = [entry for entry in closed if metric in entry["quality"]][-1]
        value = formats.number(last["quality"][metric])
        shown.append(Tile(metric, value, f"model of round {last['round']}"))
    return shown


def overview_charts(report: Report) -> list[Chart]:
    """Charts of bytes, quality, privacy and time per round, for the newest MAX_CHART_ROUNDS closed rounds."""
    closed = _closed_rounds(report)[-MAX_CHART_ROUNDS:]
    if not closed:
        return []
    numbers = [entry["round"] for entry in closed]
    outcomes = [
        Series(outcome, f"outcome-{outcome}", [entry[f"{outcome}_bytes"] for entry in closed]) for outcome in OUTCOMES
    ]
    phone = Series("mean of accepted updates", "c0", [entry["mean_bytes_per_phone"] for entry in closed])
    drawn = [
        charts.stacked_bars(
            "Bytes uploaded per round", numbers, outcomes, SIZES, Reference(PAPER_GIB_PER_ROUND * GIB, PAPER_ROUND)
        ),
        charts.stacked_bars("Bytes downloaded per round", numbers, _download_series(closed), SIZES),
        charts.lines(
            "Upload per phone", numbers, [phone], SIZES, reference=Reference(PAPER_MIB_PER_PHONE * MIB, PAPER_PHONE)
        ),
        charts.stacked_bars("Useful bytes per round by codec", numbers, _codec_series(closed, report), SIZES),
    ]
    for metric in _metrics(closed)[:MAX_CHART_METRICS]:
        values = Series(metric, "c2", [entry["quality"].get(metric) for entry in closed])
        drawn.append(charts.lines(metric, numbers, [values], NUMBERS, from_zero=False))
    if any(entry["epsilon"] is not None for entry in closed):
        spent = Series("ε", "c3", [entry["epsilon"] for entry in closed])
        drawn.append(charts.lines(f"Privacy spent, ε: {NEIGHBOURS}", numbers, [spent], NUMBERS))
    times = Series("seconds", "c1", [entry["seconds_to_model"] for entry in closed])
    drawn.append(charts.lines("First byte to new model", numbers, [times], TIMES))
    return drawn


def codec_rows(report: Report) -> list[dict[str, Any]]:
    """The accepted updates of all rounds by codec.

    model_ratio, ratio: how many times fewer bytes they have than whole models, than paper P's updates.
    """
    rows = []
    for place, codec in enumerate(_codecs(report["rounds"])):
        entries = [
            (entry["base_bytes"], entry["codecs"][codec]) for entry in report["rounds"] if codec in entry["codecs"]
        ]
        updates, nbytes = (sum(part[name] for _, part in entries) for name in ("updates", "bytes"))
        whole = sum(base_bytes * part["updates"] for base_bytes, part in entries)
        figures = {"updates": updates, "bytes": nbytes, "mean": nbytes / updates, "model_ratio": whole / nbytes}
        ratio = PAPER_MIB_PER_PHONE * MIB * updates / nbytes
        rows.append({"codec": codec, "css": _colour(place), **figures, "ratio": ratio})
    return rows


def lineage_rows(
    models: Sequence[Mapping[str, Any]], current: str, rolled_back: Collection[int], deployed: Collection[str]
) -> list[dict[str, Any]]:
    """Models newest first; each marked if it is the current model, an ancestor of it, or of no round rolled back, and
    if phones got it: those `deployed`.
    """
    parents = {model["sha256"]: model["parent_sha256"] for model in models}
    line: set[str] = set()
    at: str | None = current
    while at is not None and at not in line:
        line.add(at)
        at = parents.get(at)
    return [
        {
            **model,
            "current": model["sha256"] == current,
            "deployed": model["sha256"] in deployed,
            "in_line": model["sha256"] in line or model["round"] not in rolled_back,
        }
        for model in reversed(models)
    ]


def metrics_of(report: Report) -> list[str]:
    """The metrics with a column in tables of rounds."""
    return _metrics(_closed_rounds(report))[:MAX_TABLE_METRICS]


def phone_totals(phones: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """The column totals of a round's phones."""
    return {name: sum_of_known([phone[name] for phone in phones]) for name in TRAFFIC}


def _than(theirs: float, ours: float) -> str:
    ratio = theirs / ours
    return f"{formats.ratio(max(ratio, 1 / ratio))} {'less' if ratio >= 1 else 'more'}"


def _closed_rounds(report: Report) -> list[Mapping[str, Any]]:
    return [entry for entry in report["rounds"] if entry["closed_at"] is not None]


def _codecs(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({codec for entry in rounds for codec in entry["codecs"]})


def _codec_series(closed: Sequence[Mapping[str, Any]], report: Report) -> list[Series]:
    return [
        Series(codec, _colour(place), [entry["codecs"].get(codec, {}).get("bytes") for entry in closed])
        for place, codec in enumerate(_codecs(report["rounds"]))
    ]


def _download_series(closed: Sequence[Mapping[str, Any]]) -> list[Series]:
    models, links = ([entry[name] for entry in closed] for name in ("model_bytes", "sent_link_bytes"))
    both = [entry["down_body_bytes"] + entry["down_header_bytes"] for entry in closed]
    rest = [whole - model - link for whole, model, link in zip(both, models, links, strict=True)]
    parts = (("models", models), ("links", links), ("headers and other answers", rest))
    return [Series(name, _colour(place), values) for place, (name, values) in enumerate(parts)]


def _colour(place: int) -> str:
    return f"c{place % CODEC_COLOURS}"


def _metrics(closed: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({metric for entry in closed for metric in entry["quality"]})
