"""Charts as geometry in the coordinates of an SVG viewBox; templates/chart.html draws them.

Pure functions of numbers. The template escapes the labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

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
LEAST_SPAN = 1e-300  # below, powers of ten are no exact floats
TICKS = 4
LABELS = 5


@dataclass(frozen=True)
class AxisFormat:
    """Format of an axis's values (`text`); `unit`: the size and name of the unit for an axis up to a value."""

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


class Series(NamedTuple):
    """One value per round, or None; `css`: the class of its colour."""

    label: str
    css: str
    values: Sequence[float | None]


class Reference(NamedTuple):
    """A reference value with its label."""

    value: float
    label: str


class Rect(NamedTuple):
    """A rectangle; `css`: the class of its colour."""

    x: float
    y: float
    width: float
    height: float
    css: str = ""


class Column(NamedTuple):
    """The column of one round: `hit`, the area for the pointer; `tip`, its tooltip; `parts`, the parts of its bar."""

    hit: Rect
    tip: str
    parts: Sequence[Rect] = ()


class Tick(NamedTuple):
    """A tick of an axis."""

    at: float
    label: str


class Curve(NamedTuple):
    """A line through points "x,y x,y ...", with `dots` if there are few."""

    points: str
    dots: Sequence[tuple[float, float]]
    css: str


class ReferenceLine(NamedTuple):
    """A reference line; `broken`: above an axis break, not to scale."""

    y: float
    label: str
    broken: bool


@dataclass(frozen=True)
class Chart:
    """A chart with its title and a one-sentence description; `legend`: label and class of each series."""

    title: str
    description: str
    columns: Sequence[Column]
    curves: Sequence[Curve]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    reference: ReferenceLine | None
    legend: Sequence[tuple[str, str]]
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
    totals = [sum(one.values[place] or 0.0 for one in series) for place in range(len(rounds))]
    frame = _Frame(rounds, axis_format, 0.0, max(totals, default=0.0), reference)
    width = frame.slot if frame.slot < GAPLESS_BAR_WIDTH else min(MAX_BAR_WIDTH, frame.slot * 0.8)
    columns = []
    for place in range(len(rounds)):
        parts, said, below = [], [], 0.0
        for one in series:
            if value := one.values[place] or 0.0:
                low, high = frame.y(below), frame.y(below + value)
                parts.append(_rect(frame.x(place) - width / 2, high, width, low - high, one.css))
                said.append(f"{one.label} {axis_format.text(value)}")
                below += value
        columns.append(frame.column(place, said or [axis_format.text(0.0)], parts))
    used = [one for one in series if any(one.values)] or series[:1]
    return frame.chart(title, used, columns, values=[total for total in totals if total])


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
    values = [value for one in series for value in one.values if value is not None]
    low = 0.0 if from_zero or reference else min(values, default=0.0)
    frame = _Frame(rounds, axis_format, low, max(values, default=0.0), reference)
    curves = []
    for one in series:
        points = [
            (_hundredths(frame.x(place)), _hundredths(frame.y(value)))
            for place, value in enumerate(one.values)
            if value is not None
        ]
        dots = points if len(points) <= MAX_DOTS else points[-1:]
        curves.append(Curve(" ".join(f"{x},{y}" for x, y in points), dots, one.css))
    columns = []
    for place in range(len(rounds)):
        said = [f"{one.label} {axis_format.text(value)}" for one in series if (value := one.values[place]) is not None]
        if said:
            columns.append(frame.column(place, said))
    return frame.chart(title, series, columns, curves, values)


def decimal_step(span: float) -> float:
    """The tick distance that divides `span` into at most TICKS parts: 1, 2, 2.5 or 5 times a power of ten."""
    if not span > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * TICKS >= span * (1 - 1e-9))


class _Frame:
    """Frame around the data: rounds from left to right, values from `low` to `highest` upwards, a reference.

    A reference far above the data is drawn above an axis break.
    """

    def __init__(
        self,
        rounds: Sequence[int],
        axis_format: AxisFormat,
        low: float,
        highest: float,
        reference: Reference | None,
    ):
        self.slot = (WIDTH - LEFT - RIGHT) / max(1, len(rounds))
        self._rounds, self._format, self._reference, self._highest = rounds, axis_format, reference, highest
        high, self._top = highest, TOP
        if reference is not None and highest > 0 and reference.value <= TO_SCALE * highest:
            high = max(highest, reference.value)
        elif reference is not None:
            self._top += AXIS_BREAK
        if not high > low + LEAST_SPAN:
            low, high = (low, low + 1.0) if low <= LEAST_SPAN else (low - abs(low) * 0.1, high + abs(high) * 0.1)
        step = axis_format.step(high - low)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        self._ticks = [place * step for place in range(first, last + 1)]

    def x(self, place: int) -> float:
        return LEFT + self.slot * (place + 0.5)

    def y(self, value: float) -> float:
        share = (value - self._ticks[0]) / (self._ticks[-1] - self._ticks[0])
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - self._top)

    def column(self, place: int, said: Sequence[str], parts: Sequence[Rect] = ()) -> Column:
        hit = _rect(LEFT + self.slot * place, TOP, self.slot, HEIGHT - BOTTOM - TOP)
        return Column(hit, f"Round {self._rounds[place]}: {', '.join(said)}", parts)

    def chart(
        self,
        title: str,
        series: Sequence[Series],
        columns: Sequence[Column],
        curves: Sequence[Curve] = (),
        values: Sequence[float] = (),
    ) -> Chart:
        labels = self._format.ticks(self._ticks)
        return Chart(
            title=title,
            description=self._description(values),
            columns=columns,
            curves=curves,
            x_ticks=[Tick(_hundredths(self.x(place)), str(self._rounds[place])) for place in self._label_places()],
            y_ticks=[Tick(_hundredths(self.y(at)), label) for at, label in zip(self._ticks, labels, strict=True)],
            reference=self._reference_line(),
            legend=[(one.label, one.css) for one in series],
        )

    def _label_places(self) -> Sequence[int]:
        """The places of at most LABELS + 1 rounds, at multiples of a round number."""
        rounds = self._rounds
        if len(rounds) <= LABELS:
            return range(len(rounds))
        step = max(1, math.ceil(decimal_step((rounds[-1] - rounds[0] + 1) * TICKS / LABELS)))
        chosen = [place for place, number in enumerate(rounds) if number % step == 0]
        return chosen or range(len(rounds))[-LABELS:]

    def _reference_line(self) -> ReferenceLine | None:
        reference = self._reference
        if reference is None:
            return None
        if reference.value <= self._ticks[-1]:
            return ReferenceLine(_hundredths(self.y(reference.value)), reference.label, broken=False)
        more = f", {formats.ratio(reference.value / self._highest)} the highest value" if self._highest > 0 else ""
        return ReferenceLine(TOP - 8.0, reference.label + more, broken=True)

    def _description(self, values: Sequence[float]) -> str:
        rounds, text = self._rounds, self._format.text
        if not rounds or not values:
            return "No values yet."
        span = f"Rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"Round {rounds[0]}"
        return f"{span}: {text(min(values))} to {text(max(values))}, last {text(values[-1])}."


def _rect(x: float, y: float, width: float, height: float, css: str = "") -> Rect:
    return Rect(_hundredths(x), _hundredths(y), _hundredths(width), _hundredths(height), css)


def _hundredths(value: float) -> float:
    return round(value, 2)
