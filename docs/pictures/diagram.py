"""Boxes and arrows as an SVG: dark on a white card, which both of GitHub's themes show, and readable on a phone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import hypot

LINE, LETTER, MARGIN = 19, 7.5, 14  # pixels: a line's height, a wide letter's width, around all
FILLS = {"phone": "#e3eef7", "server": "#fbeedd", "store": "#e6f2ea", "": "#f3f5f7"}
CARD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"
width="{width:g}" height="{height:g}" font-family="system-ui, sans-serif" font-size="14" fill="#1d2329"
text-anchor="middle">
<title>{title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#5b6670"/></marker></defs>
<style>rect{{stroke:#8a949e}} path.a{{stroke:#5b6670;stroke-width:1.5;fill:none;marker-end:url(#tip)}}
.d{{stroke-dasharray:5 4}} .l{{font-size:12.5px;fill:#46505a;paint-order:stroke;stroke:#fff;stroke-width:5px}}</style>
<rect x=".5" y=".5" width="{inner_width:g}" height="{inner_height:g}" rx="8" fill="#fff"/>
{drawn}
</svg>
"""


@dataclass(frozen=True)
class Box:
    """A box in a column and row, which may be halves, with lines of text. kind: whose it is, which gives the colour."""

    column: float
    row: float
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Arrow:
    """An arrow from a box to another; its label stands beside its middle. dashed: not the usual way."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Diagram:
    """A picture. width: of a box; gap: between columns and between rows, in pixels."""

    title: str
    boxes: Mapping[str, Box]
    arrows: Sequence[Arrow] = field(default=())
    width: float = 140
    gap: tuple[float, float] = (60, 46)


def draw(diagram: Diagram) -> str:
    """The SVG, the same for the same diagram. Raises ValueError for a text that its box has no room for."""
    height = max(_height(box) for box in diagram.boxes.values())
    places = {
        name: (
            MARGIN + box.column * (diagram.width + diagram.gap[0]) + diagram.width / 2,
            MARGIN + box.row * (height + diagram.gap[1]) + height / 2,
        )
        for name, box in diagram.boxes.items()
    }
    there = {(arrow.start, arrow.end) for arrow in diagram.arrows}
    drawn = [_arrow(diagram, places, arrow, (arrow.end, arrow.start) in there) for arrow in diagram.arrows]
    drawn += [_box(box, places[name], diagram.width) for name, box in diagram.boxes.items()]
    width = max(x for x, _ in places.values()) + diagram.width / 2 + MARGIN
    height = max(y for _, y in places.values()) + height / 2 + MARGIN
    size = {"width": width, "height": height, "inner_width": width - 1, "inner_height": height - 1}
    return CARD.format(title=escape(diagram.title), drawn="\n".join(drawn), **size)


def _height(box: Box) -> float:
    return LINE * len(box.text.splitlines()) + 16


def _box(box: Box, place: tuple[float, float], width: float) -> str:
    x, y, height = *place, _height(box)
    if longest := [line for line in box.text.splitlines() if LETTER * len(line) > width - 6]:
        raise ValueError(f"{longest[0]!r} is wider than its box of {width} pixels")
    rect = f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}" rx="6" '
    return f'{rect}fill="{FILLS[box.kind]}"/>\n{_text(box.text, x, y)}'


def _text(text: str, x: float, y: float, more: str = "") -> str:
    lines = text.splitlines()
    top = y - LINE * (len(lines) - 1) / 2 + 5
    return "\n".join(
        f'<text x="{x:g}" y="{top + LINE * place:g}"{more}>{escape(line)}</text>' for place, line in enumerate(lines)
    )


def _arrow(diagram: Diagram, places: Mapping[str, tuple[float, float]], arrow: Arrow, both_ways: bool) -> str:
    (x1, y1), (x2, y2) = places[arrow.start], places[arrow.end]
    length = hypot(x2 - x1, y2 - y1)
    across = ((y1 - y2) / length, (x2 - x1) / length)  # to the right of who walks along it
    aside = 9 if both_ways else 0
    x1, x2, y1, y2 = (x1 + aside * across[0], x2 + aside * across[0], y1 + aside * across[1], y2 + aside * across[1])
    parts = []
    for name, sign in ((arrow.start, 1), (arrow.end, -1)):
        half = (diagram.width / 2, _height(diagram.boxes[name]) / 2)
        steps = [
            size / abs(way) for size, way in zip(half, ((x2 - x1) / length, (y2 - y1) / length), strict=True) if way
        ]
        parts.append(sign * min(steps) / length)
    ax, ay = x1 + parts[0] * (x2 - x1), y1 + parts[0] * (y2 - y1)
    bx, by = x2 + parts[1] * (x2 - x1), y2 + parts[1] * (y2 - y1)
    path = f'<path class="a{" d" if arrow.dashed else ""}" d="M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"/>'
    x, y, where = (ax + bx) / 2, (ay + by) / 2, ""
    if both_ways and abs(by - ay) > abs(bx - ax):  # down or up, beside another
        x += 7 if across[0] > 0 else -7
        where = f' text-anchor="{"start" if across[0] > 0 else "end"}"'
    elif abs(by - ay) < abs(bx - ax):
        y += 14 if both_ways and across[1] > 0 else -12
    return path + "\n" + _text(arrow.label, x, y, f' class="l"{where}')
