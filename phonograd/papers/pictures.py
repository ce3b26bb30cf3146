"""docs/results.md, and pages beside it, with their pictures: curves, drawn from the results' figures alone."""

import textwrap
from collections.abc import Mapping
from functools import partial
from itertools import cycle, groupby
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.files import storage_errors, write_bytes
from phonograd.pages.plots import COLOURS, logarithmic, of_rounds, svg_file
from phonograd.papers.curves import Lines, lines
from phonograd.papers.experiment import Experiment, Plot, load, names
from phonograd.papers.page import own_pages, page, picture_place
from phonograd.papers.result import Result, read_result

# Colour and dashes of a curve; dashes, so that one shows below another that it equals.
STYLES = [(COLOURS[place % len(COLOURS)], ("-", "--", "-.", ":")[place % 4]) for place in range(2 * len(COLOURS))]


def write_page(path: Path, results: Path) -> None:
    """Write the page, those beside it, and their pictures in the folder `pictures`. Raises StorageError, and as `page`
    does.
    """
    files = {path.name: page(results), **own_pages(results)}
    for name in names():
        result, experiment = results / f"{name}.json", load(name)
        if experiment.plots and result.exists():
            files[picture_place(name)] = picture(experiment, read_result(result))
    for place, text in files.items():
        with storage_errors(path.parent / place):
            (path.parent / place).parent.mkdir(exist_ok=True)
        write_bytes(path.parent / place, text.encode())


def picture(experiment: Experiment, result: Result) -> str:
    """All plots of an experiment as one SVG, the same for the same figures, which its description has.

    Raises ArtifactsError for a plot of figures that the result does not have.
    """
    drawn = [(plot, lines(plot, result)) for plot in experiment.plots]
    curves = dict.fromkeys(curve for _, curves_of_plot in drawn for curve in curves_of_plot)
    styles = dict(zip(curves, cycle(STYLES), strict=False))
    plots = [partial(_draw, plot=plot, lines=curves_of_plot, styles=styles) for plot, curves_of_plot in drawn]
    return svg_file(plots, describe(experiment, result))


def describe(experiment: Experiment, result: Result) -> str:
    """What a picture shows, in words and figures."""
    return "\n".join(
        f"{plot.title}: {name}: " + ", ".join(f"{point.x:g} {point.y:g}" for point in line)
        for plot in experiment.plots
        for name, line in lines(plot, result).items()
    )


def _draw(axes: Any, plot: Plot, lines: Lines, styles: Mapping[str, tuple[str, str]]) -> None:
    for name, line in lines.items():
        colour, dashes = styles[name]
        at = [point.x for point in line]
        axes.plot(at, [point.y for point in line], color=colour, ls=dashes, marker=".", label=name)
        if bands := [point.band for point in line if point.band is not None]:
            low, high = zip(*bands, strict=True)
            axes.fill_between(at, low, high, color=colour, alpha=0.1, lw=0)
            axes.plot(at, low, at, high, color=colour, ls=dashes, lw=0.6)
    if plot.against:
        axes.set_xlabel(plot.against)
    else:
        of_rounds(axes)
    axes.set(title=textwrap.fill(plot.title, 40), ylabel=plot.figure)
    names = dict.fromkeys((point.x, point.name) for line in lines.values() for point in line if point.name)
    if names:
        low, high = axes.get_ylim()
        axes.set_ylim(low - (high - low) / 2, high)  # names stand below the lines
    for x, those in groupby(names, lambda name: name[0]):
        label, place = "\n".join(name for _, name in those), ("data", "axes fraction")
        axes.annotate(label, (x, 0.02), xycoords=place, rotation=90, ha="center", fontsize=8)
    for axis in plot.logarithmic:
        logarithmic(axes, axis)
