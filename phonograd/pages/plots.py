"""Plots as SVG, and the HTML page of plots and tables."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install
from phonograd.device_runtime.base.files import write_bytes
from phonograd.pages import format_value

try:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker
except ImportError as error:
    raise MissingExtraError(f"a page with plots needs matplotlib; {how_to_install('plots')}") from error

WIDEST_WITH_MINOR_TICKS = 300  # times the least value on an axis
COLOURS = ("#1b6ca8", "#e08e2b", "#3b8f5a", "#9b4f96", "#6b7785", "#c0392b")
SIZE = (4.8, 3.6)  # inches: narrow, so that letters are readable on a phone
WIDEST_LINEAR = 20  # times the least value on an axis whose values are still told apart
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>phonograd: {{ title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #1d2329; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .7rem; overflow-wrap: break-word; border-bottom: 1px solid #dde2e7; text-align: right; }
td:first-child, th:first-child { text-align: left; } h1, h2, p { overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } figure { margin: 1rem 0; min-width: 0; } svg { max-width: 100%; height: auto; }
.plots { display: grid; gap: 1rem;
grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
@media (max-width: 40rem) { table { font-size: .7rem; } td, th { padding: .2rem .15rem; } .plots svg { width: 100%; } }
.note { color: #5b6670; }
</style></head><body>
<h1>{{ title }}</h1>
<div class="plots">{% for plot in plots %}<figure>{{ plot | safe }}</figure>{% endfor %}</div>
{% for heading, note, rows in tables %}
<h2>{{ heading }}</h2>{% if note %}<p class="note">{{ note }}</p>{% endif %}<div class="scroll"><table>
<tr>{% for key in rows[0] %}<th>{{ key }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for value in row.values() %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
{% endfor %}
<p class="note">{{ note }}</p>
</body></html>
"""
# A table's heading, what is said of it, and its rows; the first row's keys are the header.
Table = tuple[str, str, Sequence[Mapping[str, object]]]


def write_page(path: Path, title: str, plots: Iterable[str], tables: Iterable[Table], note: str = "") -> None:
    """Write a page of plots, each an SVG, and tables below them. Raises StorageError."""
    cells = jinja2.Environment(autoescape=True, trim_blocks=True, finalize=_cell)
    page = cells.from_string(PAGE).render(title=title, plots=plots, tables=tables, note=note)
    write_bytes(path, page.encode())


def _cell(value: object) -> str:
    return value if isinstance(value, markupsafe.Markup) else format_value(value)


def svg(plot: Callable[[Any], None], legend: bool = True) -> str:
    """What `plot` draws on matplotlib axes, with a legend below them."""
    figure = plt.figure(figsize=SIZE, layout="constrained")
    axes = _draw(figure.add_subplot(), plot)
    if legend:
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    text = _save_svg(figure)
    return text[text.index("<svg") :]


def svg_file(plots: Sequence[Callable[[Any], None]], description: str) -> str:
    """What `plots` draw, each on axes of its own, one below the other, as an SVG file with one legend for all.

    description: in the file's metadata. The same plots give the same bytes.
    """
    with mpl.rc_context({"svg.hashsalt": "phonograd", "svg.fonttype": "none"}):
        figure = plt.figure(figsize=(SIZE[0], SIZE[1] * len(plots)), layout="constrained")
        labels: dict[str, Any] = {}
        for place, plot in enumerate(plots, 1):
            axes = _draw(figure.add_subplot(len(plots), 1, place), plot)
            labels |= {label: line for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", frameon=False)
        return _save_svg(figure, metadata={"Date": None, "Creator": None, "Description": description})


def _draw(axes: Any, plot: Callable[[Any], None]) -> Any:
    axes.spines[["top", "right"]].set_visible(False)
    plot(axes)
    return axes


def _save_svg(figure: Any, **how: Any) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", **how)
    plt.close(figure)
    return out.getvalue()


class _PlainTicks(ticker.LogLocator):
    def tick_values(self, low: float, high: float) -> Any:
        self.set_params(subs=(1, 2, 5) if high < WIDEST_WITH_MINOR_TICKS * low else (1,))
        return super().tick_values(low, high)


def logarithmic(axes: Any, axis: str) -> None:
    """Make `axis`, "x" or "y", logarithmic, with plain numbers at powers of ten; also at 2 and 5 of each if there is
    room.
    """
    getattr(axes, f"set_{axis}scale")("log", nonpositive="mask")  # no line falls to the logarithm of zero
    scale = getattr(axes, f"{axis}axis")
    scale.set_major_locator(_PlainTicks())
    scale.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
    scale.set_minor_formatter(ticker.NullFormatter())


def readable_scale(axes: Any, axis: str) -> None:
    """Make `axis` logarithmic if what lines have there differs so much that a linear one would flatten the small."""
    drawn = [value for line in axes.lines for value in getattr(line, f"get_{axis}data")() if value > 0]
    if drawn and max(drawn) > WIDEST_LINEAR * min(drawn):
        logarithmic(axes, axis)


def of_rounds(axes: Any) -> None:
    """Make the x axis one of whole numbers, a simulation's rounds."""
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)
