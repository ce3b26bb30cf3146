"""Simulations as one HTML page: quality over rounds, bytes, and quality against bytes."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from phonograd.simulation.figures import COLOURS, svg, table, write_figures
from phonograd.simulation.records import Quality, SimulationRecord
from phonograd.simulation.table import rows_of

MB = 1e6
HASH_DIGITS, SHA256_DIGITS = 12, 64

Simulations = Mapping[str, SimulationRecord]


def write_page(path: Path, simulations: Simulations) -> None:
    """Write the page of one simulation, or of several to compare, by name. Raises StorageError."""
    drawn = (_users, _general, _bytes, _by_bytes)
    plots = [svg(partial(plot, simulations=simulations), legend=len(simulations) > 1) for plot in drawn]
    tables = "".join(_table(name, record) for name, record in simulations.items())
    write_figures(path, "Simulated rounds", plots, tables + _settings(simulations))


def _settings(simulations: Simulations) -> str:
    """All settings and inputs of each simulation, those that differ first."""
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
    return table("Settings", note, shown)


def _brief(value: object) -> object:
    """A hash by its first digits."""
    return value[:HASH_DIGITS] if isinstance(value, str) and len(value) == SHA256_DIGITS else value


def _table(name: str, record: SimulationRecord) -> str:
    users = record.users
    note = f"{users.training} users train, {users.testing} are evaluated on, {users.left_out} have too little text."
    return table(name, note, rows_of(record))


def _measured(record: SimulationRecord) -> list[tuple[int, Quality]]:
    """Rounds whose model was measured; 0 is the first model."""
    found = [(ended.number, ended.quality) for ended in record.rounds if ended.quality is not None]
    return [(0, record.before), *found]


def _users(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        points = [(number, quality.users) for number, quality in _measured(record) if quality.users is not None]
        rounds = [number for number, _ in points]
        spread = [users.perplexity for _, users in points]
        axes.plot(rounds, [at.mean for at in spread], color=colour, label=name)
        axes.fill_between(rounds, [at.p10 for at in spread], [at.p90 for at in spread], color=colour, alpha=0.15, lw=0)
    axes.set_title("New users: perplexity, mean and 10th to 90th percentile")
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_yscale("log")


def _general(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        points = [(number, quality.general) for number, quality in _measured(record) if quality.general is not None]
        axes.plot([at for at, _ in points], [scores.perplexity for _, scores in points], color=colour, label=name)
    axes.set_title("General text: perplexity")
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)


def _bytes(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        rounds = [ended.number for ended in record.rounds]
        up = list(accumulate(ended.bytes_up for ended in record.rounds))
        down = list(accumulate(ended.bytes_down for ended in record.rounds))
        axes.plot(rounds, [value / MB for value in up], color=colour, label=f"{name}, up")
        axes.plot(rounds, [value / MB for value in down], color=colour, ls=":", label=f"{name}, down")
    axes.set_title("MB so far, up and (dotted) down")
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_yscale("log")


def _by_bytes(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        up = [0, *accumulate(ended.bytes_up for ended in record.rounds)]
        points = [(up[number], at.users) for number, at in _measured(record) if at.users is not None and number]
        axes.plot(
            [so_far / MB for so_far, _ in points],
            [users.perplexity.mean for _, users in points],
            color=colour,
            label=name,
        )
    axes.set_title("New users: perplexity by MB uploaded")
    axes.set_xlabel("MB uploaded")
    if any(ended.bytes_up for record in simulations.values() for ended in record.rounds):
        axes.set_xscale("log")


def _cycle(simulations: Simulations) -> Sequence[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(simulations))]
