"""Simulations as one HTML page: quality over rounds, bytes, and quality against bytes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from phonograd.pages.plots import COLOURS, Table, of_rounds, readable_scale, svg
from phonograd.pages.plots import write_page as write
from phonograd.simulation.quality import spread
from phonograd.simulation.records import MB, SimulationRecord, tables_of

Simulations = Mapping[str, SimulationRecord]
# What a line is beside its simulation's name, its style, and its places, x and y; and the band around it.
Line = tuple[str, str, Sequence[float], Sequence[float], Sequence[tuple[float, float]]]


def write_page(path: Path, simulations: Simulations) -> None:
    """Write the page of one simulation, or of several to compare, by name. Raises StorageError."""
    drawn: tuple[tuple[Callable[[SimulationRecord], Iterator[Line]], dict[str, str]], ...] = (
        (_users, {"title": "New users, and 10th to 90th percentile", "ylabel": "perplexity"}),
        (_general, {"title": "General text", "ylabel": "perplexity"}),
        (_bytes, {"title": "Bytes so far, up and (dotted) down", "ylabel": "MB"}),
        (_by_bytes, {"title": "New users, by upload", "xlabel": "MB uploaded", "ylabel": "perplexity"}),
    )
    plots = [svg(partial(_plot, simulations, *one)) for one in drawn]
    tables = [
        (f"{name}: {title}", _note(record) if title == "New users" else "", rows)
        for name, record in simulations.items()
        for title, rows in tables_of(record).items()
    ]
    write(path, "Simulated rounds", plots, [*tables, _settings(simulations)])


def _settings(simulations: Simulations) -> Table:
    jobs = {name: _flat({"rounds": len(record.rounds), **record.job}) for name, record in simulations.items()}
    rows = []
    for setting in dict.fromkeys(setting for job in jobs.values() for setting in job):
        values = [job.get(setting) for job in jobs.values()]
        rows.append((values.count(values[0]) == len(values), setting, values))
    rows.sort(key=lambda row: row[0])
    differ = [setting for same, setting, _ in rows if not same]
    note = f"Different here: {', '.join(differ)}." if differ else "Texts and models are named by their SHA-256."
    if {"users", "general_test"} & {*differ}:
        note += " They were measured on other texts: their perplexities can't be compared."
    shown = [{"setting": setting, **dict(zip(jobs, values, strict=True))} for _, setting, values in rows]
    return "Settings", note, shown


def _flat(job: Mapping[str, Any]) -> dict[str, object]:
    """A job's settings by their dotted names; numbers as a configuration file takes them."""
    flat: dict[str, object] = {}
    for name, value in job.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        flat |= {f"{name}.{part}" if part else name: _as_given(one) for part, one in parts}
    return flat


def _as_given(value: object) -> object:
    return value if value is None or isinstance(value, bool) else str(value)


def _note(record: SimulationRecord) -> str:
    users = record.users
    return f"{users.training} users train, {users.testing} are evaluated on, {users.left_out} have too little text."


def _plot(
    simulations: Simulations,
    lines: Callable[[SimulationRecord], Iterator[Line]],
    settings: Mapping[str, str],
    axes: Any,
) -> None:
    for place, (name, record) in enumerate(simulations.items()):
        colour = COLOURS[place % len(COLOURS)]
        for more, style, x, y, band in lines(record):
            axes.plot(x, y, style, color=colour, label=name + more)
            if band:
                axes.fill_between(x, *zip(*band, strict=True), color=colour, alpha=0.15, lw=0)
    if "xlabel" in settings:
        readable_scale(axes, "x")
    else:
        of_rounds(axes)
    readable_scale(axes, "y")
    axes.set(**settings)


def _users(record: SimulationRecord) -> Iterator[Line]:
    points = [(number, found) for number, at in record.qualities.items() if (found := spread(at.users, "perplexity"))]
    band = [(found.p10, found.p90) for _, found in points]
    yield "", "-", [number for number, _ in points], [found.pooled for _, found in points], band


def _general(record: SimulationRecord) -> Iterator[Line]:
    points = [(number, at.general.perplexity) for number, at in record.qualities.items() if at.general is not None]
    yield "", "-", [number for number, _ in points], [perplexity for _, perplexity in points], ()


def _bytes(record: SimulationRecord) -> Iterator[Line]:
    rounds = [ended.number for ended in record.rounds]
    for more, style, sent in (
        (", up", "-", [ended.bytes_up for ended in record.rounds]),
        (", down", ":", [ended.bytes_down for ended in record.rounds]),
    ):
        yield more, style, rounds, [nbytes / MB for nbytes in accumulate(sent)], ()


def _by_bytes(record: SimulationRecord) -> Iterator[Line]:
    up = [0, *accumulate(ended.bytes_up for ended in record.rounds)]
    points = [(up[number], spread(at.users, "perplexity")) for number, at in record.qualities.items() if number]
    shown = [(so_far / MB, found.pooled) for so_far, found in points if found is not None]
    yield "", "-", [so_far for so_far, _ in shown], [perplexity for _, perplexity in shown], ()
