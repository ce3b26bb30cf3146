"""Curves of a result: what simulations measured round by round, in rows named `NAME, round N`; or against a fact."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers.experiment import Experiment, Plot, Rows
from phonograd.papers.result import Result

INITIAL = "initial"
_POINT = re.compile(r"(.+), round ([0-9]+)")


@dataclass(frozen=True)
class Point:
    """A point of a line, and the band around it. name: whose fact x is."""

    x: float
    y: float
    band: tuple[float, float] | None
    name: str = ""


# The lines of a plot, by curve.
Lines: TypeAlias = Mapping[str, Sequence[Point]]


def lines(plot: Plot, result: Result) -> Lines:
    """The lines of a plot, of means over seeds; a row `initial` is round 0 of every curve.

    Raises ArtifactsError if no row has the plot's figures.
    """
    if plot.against:
        return _lines_against(plot, result)
    rows = result.means()
    by_name: dict[str, list[Point]] = {}
    for row in rows:
        if name := _POINT.fullmatch(row):
            line = by_name.setdefault(name[1], _points(plot, rows, INITIAL, 0))
            line += _points(plot, rows, row, int(name[2]))
    drawn = {name: line for name, line in by_name.items() if any(point.x for point in line)}
    if not drawn:
        raise ArtifactsError(f"plot {plot.title!r}: rows 'NAME, round N' with {plot.figure!r} expected")
    return drawn


def _lines_against(plot: Plot, result: Result) -> Lines:
    rows, end = result.means(), f": {plot.against}"
    facts = sorted((values[0], name.removesuffix(end)) for name, values in result.facts.items() if name.endswith(end))
    found = {
        label: [Point(x, rows[row][figure], None, name) for x, name in facts if (row := f"{name}, {state}") in rows]
        for label, (state, figure) in plot.lines.items()
    }
    if not all(found.values()):
        raise ArtifactsError(f"plot {plot.title!r}: rows of {', '.join(plot.lines)} expected, found {', '.join(rows)}")
    return found


def in_table(experiment: Experiment, row: str) -> bool:
    """Whether the table beside plots has a row: of a curve only the experiment's `table_rounds`."""
    name = _POINT.fullmatch(row)
    return name is None or int(name[2]) in experiment.table_rounds


def _points(plot: Plot, rows: Rows, row: str, number: int) -> list[Point]:
    figures = rows.get(row, {})
    wanted = (plot.figure, *(plot.band or ()))
    if not all(figure in figures for figure in wanted):
        return []
    y, *band = (figures[figure] for figure in wanted)
    return [Point(number, y, (band[0], band[1]) if band else None)]
