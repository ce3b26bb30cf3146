"""Charts as geometry in the coordinates of an SVG viewBox; templates/chart.html draws them.

Pure functions of numbers. The template escapes the labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phonograd.server_agg.dashboard import formats
from phonograd.server_agg.report.text import UNITS, unit_power

WIDTH, HEIGHT = 480.0, 232.0
LEFT, RIGHT, TOP, BOTTOM = 70.0, 14.0, 30.0, 26.0
# The height of the axis break, for a reference far above the data.
AXIS_BREAK = 16.0
MAX_BAR_WIDTH = 30.0
# Narrower bars have no gaps.
GAPLESS_BAR_WIDTH = 6.0
# A reference up to this many times the data is drawn to scale.
TO_SCALE = 3.0
MAX_DOTS = 60
TICKS = 4
LABELS = 5


@dataclass(frozen=True)
class AxisFormat:
    """How values are written (`text`); `unit`: the size and name of the unit for an axis up to a value."""

    text: Callable[[float], str]
    unit: Callable[[float], tuple[float, str]]

    def step(self, span: float) -> float:
        """The distance of ticks over a range, a round number of the unit."""
        unit = self.unit(span)[0]
        return decimal_step(span / unit) * unit

    def ticks(self, values: Sequence[float]) -> list[str]:
        """The tick labels, all in the unit of the largest."""
        top = max(map(abs, values))
        unit, name = self.unit(top)
        # Enough digits to distinguish neighbours: 999,999,999.5 and 1,000,000,000 need eleven.
        apart = min((abs(after - before) for before, after in pairwise(values) if after != before), default=top)
        digits = max(10, 2 + math.ceil(math.log10(top / apart))) if top else 10
        return [f"{value / unit:.{digits}g}{name if value else ''}" for value in values]


def _size_unit(top: float) -> tuple[float, str]:
    power = unit_power(top)
    return 1000.0**power, f"\N{NO-BREAK SPACE}{UNITS[power]}"


def _time_unit(top: float) -> tuple[float, str]:
    length, name = next((pair for pair in ((86400, "d"), (3600, "h"), (60, "min")) if top >= 2 * pair[0]), (1, "s"))
    return float(length), f"\N{NO-BREAK SPACE}{name}"


def _no_unit(top: float) -> tuple[float, str]:
    del top
    return 1.0, ""


SIZES = AxisFormat(formats.size, _size_unit)
TIMES = AxisFormat(formats.seconds, _time_unit)
NUMBERS = AxisFormat(formats.number, _no_unit)


@dataclass(frozen=True)
class Series:
    """One value per round, or None; `css`: the class of its colour."""

    label: str
    css: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Reference:
    """A reference value with its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Rect:
    """A rectangle; `css`: the class of its colour."""

    x: float
    y: float
    width: float
    height: float
    css: str = ""


@dataclass(frozen=True)
class Column:
    """The column of one round: `hit`, the area for the pointer; `tip`, its tooltip; `parts`, the parts of its bar."""

    hit: Rect
    tip: str
    parts: tuple[Rect, ...] = ()


@dataclass(frozen=True)
class Tick:
    """A tick of an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Curve:
    """A line through points "x,y x,y ...", with `dots` if there are few."""

    points: str
    dots: tuple[tuple[float, float], ...]
    css: str


@dataclass(frozen=True)
class ReferenceLine:
    """A reference line; `broken`: above an axis break, not to scale."""

    y: float
    label: str
    broken: bool


@dataclass(frozen=True)
class Chart:
    """A chart with its title and a one-sentence description; `legend`: label and class of each series."""

    title: str
    description: str
    columns: tuple[Column, ...]
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    reference: ReferenceLine | None
    legend: tuple[tuple[str, str], ...]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    bottom: float = HEIGHT - BOTTOM


def stacked_bars(
    title: str,
    rounds: Sequence[int],
    series: Sequence[Series],
    axis_format: AxisFormat,
    reference: Reference | None = None,
) -> Chart:
    """One stacked bar per round; the axis starts at 0."""
    text = axis_format.text
    totals = [sum(one.values[place] or 0.0 for one in series) for place in range(len(rounds))]
    axis = _Axis.of(0.0, max(totals, default=0.0), reference, axis_format)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(rounds))
    width = slot if slot < GAPLESS_BAR_WIDTH else min(MAX_BAR_WIDTH, slot * 0.8)
    columns = []
    for place, number_ in enumerate(rounds):
        parts, below = [], 0.0
        for one in series:
            value = one.values[place] or 0.0
            if value > 0:
                low, high = axis.y(below), axis.y(below + value)
                parts.append(_rect(LEFT + slot * (place + 0.5) - width / 2, high, width, low - high, one.css))
            below += value
        said = ", ".join(f"{one.label} {text(one.values[place] or 0.0)}" for one in series if one.values[place])
        columns.append(_column(place, slot, f"Round {number_}: {said or text(0.0)}", tuple(parts)))
    used = [one for one in series if any(one.values)] or list(series[:1])
    description = _description(rounds, [total for total in totals if total], text)
    return Chart(
        title=title,
        description=description,
        columns=tuple(columns),
        curves=(),
        x_ticks=_round_ticks(rounds, slot),
        y_ticks=axis.labelled(axis_format),
        reference=axis.reference_line(reference, max(totals, default=0.0)),
        legend=tuple((one.label, one.css) for one in used),
    )


def lines(
    title: str,
    rounds: Sequence[int],
    series: Sequence[Series],
    axis_format: AxisFormat,
    *,
    from_zero: bool = True,
    reference: Reference | None = None,
) -> Chart:
    """One line per series, through the rounds with a value. With a reference, the axis always starts at 0."""
    text = axis_format.text
    values = [value for one in series for value in one.values if value is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)
    axis = _Axis.of(0.0 if from_zero or reference else low, high, reference, axis_format)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(rounds))
    curves = []
    for one in series:
        points = [
            (_shown(LEFT + slot * (place + 0.5)), _shown(axis.y(value)))
            for place, value in enumerate(one.values)
            if value is not None
        ]
        dots = tuple(points) if len(points) <= MAX_DOTS else tuple(points[-1:])
        curves.append(Curve(" ".join(f"{x},{y}" for x, y in points), dots, one.css))
    columns = []
    for place, number_ in enumerate(rounds):
        said = [f"{one.label} {text(value)}" for one in series if (value := one.values[place]) is not None]
        if said:
            columns.append(_column(place, slot, f"Round {number_}: {', '.join(said)}"))
    return Chart(
        title=title,
        description=_description(rounds, values, text),
        columns=tuple(columns),
        curves=tuple(curves),
        x_ticks=_round_ticks(rounds, slot),
        y_ticks=axis.labelled(axis_format),
        reference=axis.reference_line(reference, high),
        legend=tuple((one.label, one.css) for one in series),
    )


def decimal_step(span: float) -> float:
    """The tick distance that divides `span` into at most TICKS parts: 1, 2, 2.5 or 5 times a power of ten."""
    if not span > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * TICKS >= span * (1 - 1e-9))


@dataclass(frozen=True)
class _Axis:
    """The vertical axis, from `low` at the bottom to `high` at `top`."""

    low: float
    high: float
    top: float
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, low: float, high: float, reference: Reference | None, axis_format: AxisFormat) -> "_Axis":
        to_scale = reference is not None and high > 0 and reference.value <= TO_SCALE * high
        if reference is not None and to_scale:
            high = max(high, reference.value)
        if not high > low:
            low, high = (low, low + 1.0) if low == 0 else (low - abs(low) * 0.1, high + abs(high) * 0.1)
        step = axis_format.step(high - low)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        ticks = tuple(place * step for place in range(first, last + 1))
        broken = reference is not None and not to_scale
        return cls(ticks[0], ticks[-1], TOP + (AXIS_BREAK if broken else 0.0), ticks)

    def y(self, value: float) -> float:
        """The y coordinate of a value."""
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - self.top)

    def labelled(self, axis_format: AxisFormat) -> tuple[Tick, ...]:
        """The ticks with their labels."""
        labels = axis_format.ticks(self.ticks)
        return tuple(Tick(_shown(self.y(value)), label) for value, label in zip(self.ticks, labels, strict=True))

    def reference_line(self, reference: Reference | None, highest: float) -> ReferenceLine | None:
        """The reference line: to scale if it fits, else above an axis break."""
        if reference is None:
            return None
        if reference.value <= self.high:
            return ReferenceLine(_shown(self.y(reference.value)), reference.label, broken=False)
        more = f", {formats.ratio(reference.value / highest)} the highest value" if highest > 0 else ""
        return ReferenceLine(TOP - 8.0, reference.label + more, broken=True)


def _round_ticks(rounds: Sequence[int], slot: float) -> tuple[Tick, ...]:
    """Labels for at most LABELS + 1 rounds, at multiples of a round number."""
    if not rounds:
        return ()
    step = max(1, math.ceil(decimal_step((rounds[-1] - rounds[0] + 1) * TICKS / LABELS)))
    chosen = [place for place, number_ in enumerate(rounds) if number_ % step == 0]
    if not chosen or len(rounds) <= LABELS:
        chosen = list(range(len(rounds)))[-LABELS:]
    return tuple(Tick(_shown(LEFT + slot * (place + 0.5)), str(rounds[place])) for place in chosen)


def _column(place: int, slot: float, tip: str, parts: tuple[Rect, ...] = ()) -> Column:
    return Column(_rect(LEFT + slot * place, TOP, slot, HEIGHT - BOTTOM - TOP), tip, parts)


def _description(rounds: Sequence[int], values: Sequence[float], text: Callable[[float], str]) -> str:
    if not rounds or not values:
        return "No values yet."
    span = f"Rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"Round {rounds[0]}"
    return f"{span}: {text(min(values))} to {text(max(values))}, last {text(values[-1])}."


def _rect(x: float, y: float, width: float, height: float, css: str = "") -> Rect:
    return Rect(_shown(x), _shown(y), _shown(width), _shown(height), css)


def _shown(value: float) -> float:
    """A coordinate rounded to hundredths, which keeps pages small."""
    return round(value, 2)
