"""matplotlib figures as inline SVG: coloured by the page's theme, with unique ids, and reproducible."""

import contextlib
import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install

# Placeholders for the page's CSS variables of these names, which differ between light and dark.
INK, SOFT, GRID, REFERENCE = "#1a2330", "#566273", "#dfe3e9", "#a3230f"
SERIES = ("#0072b2", "#d17a00", "#00805c", "#b0468c", "#5b4fc7", "#2d9bc4", "#8a6d00", "#6b7280")
_VARIABLES = {INK: "ink", SOFT: "soft", GRID: "grid", REFERENCE: "reference"} | {
    colour: f"c{number}" for number, colour in enumerate(SERIES)
}
# 338 points, about the width of a phone in pixels, so that text keeps its size there.
WIDTH_INCHES = 4.7
_STYLE = {
    "svg.fonttype": "none",  # text stays text: searchable, readable by screen readers, in the page's font
    "svg.hashsalt": "phonograd",
    "text.parse_math": False,
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 9,
}
_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_NAME = re.compile(r"url\(#([^)]+)\)")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"font-family: [^;]*;?\s*")


@contextlib.contextmanager
def plot_style() -> Iterator[None]:
    """Use matplotlib with the page's style. Raises MissingExtraError without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  # an extra, and slow to import
    except ImportError as error:
        raise MissingExtraError(f"the page's plots need matplotlib; {how_to_install('plots')}") from error
    with mpl.rc_context({**mpl.rcParamsDefault, **_STYLE}), warnings.catch_warnings():
        # The browser has the glyphs.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(height_inches: float) -> Any:
    """An empty figure with the page's width."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # as above

    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


def to_svg(figure: Any, key: str, title: str, description: str) -> str:
    """The figure as an <svg> element; `key` prefixes its ids; title and description are for screen readers."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata=_METADATA)
    root = ET.fromstring(out.getvalue())
    _simplify(root, key)
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": f"{key}-title {key}-desc"}
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(tag, {"id": f"{key}-{tag}"})
        element.text = text
        root.insert(place, element)
    return ET.tostring(root, encoding="unicode")


def _simplify(root: ET.Element, key: str) -> None:
    """Drop namespaces, style sheets and unused ids; prefix the others with `key`; replace colours by variables."""
    used = set()
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(name): value for name, value in element.attrib.items()}
        used |= {name for value in element.attrib.values() for name in _NAME.findall(value)}
        used.add(element.get("href", "").removeprefix("#"))
    for element in root.iter():
        for style in [child for child in element if child.tag == "style"]:
            element.remove(style)
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        element.attrib = {name: _attribute(name, value, key) for name, value in element.attrib.items()}


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _attribute(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href":
        return f"#{key}-{value[1:]}"
    if name == "style":
        value = _COLOUR.sub(lambda match: _theme_colour(match[0]), _FONT.sub("", value))
    return _NAME.sub(rf"url(#{key}-\1)", value)


def _theme_colour(colour: str) -> str:
    return f"var(--{_VARIABLES[colour]})" if colour in _VARIABLES else colour
