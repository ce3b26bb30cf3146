"""Simulations as one HTML page: quality over rounds, bytes, and quality against bytes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from phonograd.pages.plots import COLOURS, Table, of_rounds, svg
from phonograd.pages.plots import write_page as write
from phonograd.simulation.quality import spread
from phonograd.simulation.records import MB, SimulationRecord, rows_of

HASH_DIGITS, SHA256_DIGITS = 12, 64

Simulations = Mapping[str, SimulationRecord]
# What a line is beside its simulation's name, its style, and its places, x and y; and the band around it.
Line = tuple[str, str, Sequence[float], Sequence[float], Sequence[tuple[float, float]]]


def write_page(path: Path, simulations: Simulations) -> None:
    """Write the page of one simulation, or of several to compare, by name. Raises StorageError."""
    uploaded = any(ended.bytes_up for record in simulations.values() for ended in record.rounds)
    drawn: tuple[tuple[Callable[[SimulationRecord], Iterator[Line]], dict[str, str]], ...] = (
        (_users, {"title": "New users: perplexity, pooled, and 10th to 90th percentile", "yscale": "log"}),
        (_general, {"title": "General text: perplexity"}),
        (_bytes, {"title": "MB so far, up and (dotted) down", "yscale": "log"}),
        (
            _by_bytes,
            {"title": "New users: perplexity by MB uploaded", "xlabel": "MB uploaded"}
            | ({"xscale": "log"} if uploaded else {}),
        ),
    )
    plots = [svg(partial(_plot, simulations, *one), legend=len(simulations) > 1) for one in drawn]
    tables = [(name, _note(record), rows_of(record)) for name, record in simulations.items()]
    write(path, "Simulated rounds", plots, [*tables, _settings(simulations)])


def _settings(simulations: Simulations) -> Table:
    jobs = {name: {"rounds": len(record.rounds), **record.job} for name, record in simulations.items()}
    rows = []
    for setting in dict.fromkeys(setting for job in jobs.values() for setting in job):
        values = [job.get(setting) for job in jobs.values()]
        rows.append((values.count(values[0]) == len(values), setting, values))
    rows.sort(key=lambda row: row[0])
    differ = [setting for same, setting, _ in rows if not same]
    note = f"Different here: {', '.join(differ)}." if differ else "Texts and models are named by their SHA-256."
    if {"users", "general_test"} & {*differ}:
        note += " They were measured on other texts: their perplexities can't be compared."
    shown = [{"setting": setting, **dict(zip(jobs, map(_brief, values), strict=True))} for _, setting, values in rows]
    return "Settings", note, shown


def _brief(value: object) -> object:
    return value[:HASH_DIGITS] if isinstance(value, str) and len(value) == SHA256_DIGITS else value


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
    if "xlabel" not in settings:
        of_rounds(axes)
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
