"""Plots as SVG, tables and the page that holds them."""

import html
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import write_bytes

try:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker
except ImportError as error:
    raise MissingExtraError("a page with plots needs matplotlib; pip install 'phonograd[plots]'") from error

WIDEST_WITH_MINOR_TICKS = 300  # times the least value on an axis
COLOURS = ("#1b6ca8", "#e08e2b", "#3b8f5a", "#9b4f96", "#6b7785", "#c0392b")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>phonograd: {title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1d2329; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
td, th {{ padding: .2rem .7rem; border-bottom: 1px solid #dde2e7; text-align: right; }}
td:first-child, th:first-child {{ text-align: left; }} h1, h2, p {{ overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; }} figure {{ margin: 1rem 0; min-width: 0; }} svg {{ max-width: 100%; height: auto; }}
.plots {{ display: grid; gap: 1rem;
grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }} .note {{ color: #5b6670; }}
</style></head><body>
<h1>{title}</h1>
<div class="plots">{plots}</div>
{body}
</body></html>
"""


def write_figures(path: Path, title: str, plots: Iterable[str], body: str) -> None:
    """Write a page of plots, each an SVG, and HTML below them. Raises StorageError."""
    figures = "".join(f"<figure>{plot}</figure>" for plot in plots)
    write_bytes(path, PAGE.format(title=html.escape(title), plots=figures, body=body).encode())


def table(title: str, note: str, rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as an HTML table; the first row's keys are the header."""
    head = "".join(f"<th>{html.escape(key)}</th>" for key in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(value))}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    note = f'<p class="note">{html.escape(note)}</p>'
    return f"<h2>{html.escape(title)}</h2>{note}<div class='scroll'><table><tr>{head}</tr>{body}</table></div>"


def svg(plot: Callable[[Any], None], legend: bool) -> str:
    """What `plot` draws on matplotlib axes."""
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    plot(axes)
    if legend:
        axes.legend(frameon=False)
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


class _PlainTicks(ticker.LogLocator):
    def tick_values(self, low: float, high: float) -> Any:
        self.set_params(subs=(1, 2, 5) if high < WIDEST_WITH_MINOR_TICKS * low else (1,))
        return super().tick_values(low, high)


def logarithmic(axes: Any, axis: str) -> None:
    """Make `axis`, "x" or "y", logarithmic, with plain numbers at powers of ten; also at 2 and 5 of each if there is
    room.
    """
    axes.set(**{f"{axis}scale": "log"})
    scale = getattr(axes, f"{axis}axis")
    scale.set_major_locator(_PlainTicks())
    scale.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    scale.set_minor_formatter(ticker.NullFormatter())


def svg_file(plots: Sequence[Callable[[Any], None]], description: str) -> str:
    """What `plots` draw, each on axes of its own, two in a row, as an SVG file with one legend for all.

    description: in the file's metadata. The same plots give the same bytes.
    """
    rows = math.ceil(len(plots) / 2)
    columns = min(len(plots), 2)
    with mpl.rc_context({"svg.hashsalt": "phonograd", "svg.fonttype": "none"}):
        figure = plt.figure(figsize=(6.4 * columns, 3.8 * rows), layout="constrained")
        labels: dict[str, Any] = {}
        for place, plot in enumerate(plots, 1):
            axes = figure.add_subplot(rows, columns, place)
            axes.spines[["top", "right"]].set_visible(False)
            plot(axes)
            labels |= {label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=2 * columns, frameon=False)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Description": description})
        plt.close(figure)
    return out.getvalue()


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
