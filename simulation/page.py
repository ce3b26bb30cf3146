"""Simulations as one HTML page: quality over rounds, bytes, and quality against bytes."""

import html
import io
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.simulation.records import Quality, SimulationRecord
from phonograd.simulation.table import rows_of

try:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
except ImportError as error:
    raise MissingExtraError("a simulation's page needs matplotlib; pip install 'phonograd[plots]'") from error

MB = 1e6
COLOURS = ("#1b6ca8", "#e08e2b", "#3b8f5a", "#9b4f96", "#6b7785", "#c0392b")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>phonograd simulate</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1d2329; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
td, th {{ padding: .2rem .7rem; border-bottom: 1px solid #dde2e7; text-align: right; }}
figure {{ margin: 1rem 0; }} svg {{ max-width: 100%; height: auto; }} .plots {{ display: grid; gap: 1rem;
grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); }} .note {{ color: #5b6670; }}
</style></head><body>
<h1>Simulated rounds</h1>
<div class="plots">{plots}</div>
{tables}
</body></html>
"""

Simulations = Mapping[str, SimulationRecord]


def write_page(path: Path, simulations: Simulations) -> None:
    """Write the page of one simulation, or of several to compare, by name. Raises StorageError."""
    plots = "".join(f"<figure>{_svg(plot, simulations)}</figure>" for plot in (_users, _general, _bytes, _by_bytes))
    tables = "".join(_table(name, record) for name, record in simulations.items())
    write_bytes(path, PAGE.format(plots=plots, tables=tables).encode())


def _table(name: str, record: SimulationRecord) -> str:
    users = record.users
    note = f"{users.training} users train, {users.testing} are evaluated on, {users.left_out} have too little text."
    rows = rows_of(record)
    head = "".join(f"<th>{html.escape(key)}</th>" for key in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f'<h2>{html.escape(name)}</h2><p class="note">{note}</p><table><tr>{head}</tr>{body}</table>'


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _svg(plot: Callable[[Any, Simulations], None], simulations: Simulations) -> str:
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    plot(axes, simulations)
    if len(simulations) > 1:
        axes.legend(frameon=False)
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


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
    axes.set_yscale("log")


def _general(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        points = [(number, quality.general) for number, quality in _measured(record) if quality.general is not None]
        axes.plot([at for at, _ in points], [scores.perplexity for _, scores in points], color=colour, label=name)
    axes.set_title("General text: perplexity")
    axes.set_xlabel("round")


def _bytes(axes: Any, simulations: Simulations) -> None:
    for colour, (name, record) in zip(_cycle(simulations), simulations.items(), strict=True):
        rounds = [ended.number for ended in record.rounds]
        up = list(accumulate(ended.bytes_up for ended in record.rounds))
        down = list(accumulate(ended.bytes_down for ended in record.rounds))
        axes.plot(rounds, [value / MB for value in up], color=colour, label=f"{name}, up")
        axes.plot(rounds, [value / MB for value in down], color=colour, ls=":", label=f"{name}, down")
    axes.set_title("MB so far, up and (dotted) down")
    axes.set_xlabel("round")
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
