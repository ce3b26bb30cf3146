"""Charts: what stands where says what it should."""

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phonograd.server_agg.dashboard import charts, formats
from phonograd.server_agg.dashboard.charts import NUMBERS, SIZES, TIMES, Chart, Reference, Series

FLOOR = charts.HEIGHT - charts.BOTTOM
values = st.floats(0, 1e15) | st.integers(0, 10**15).map(float)


def bars(*parts: list[float], reference: float | None = None) -> Chart:
    series = [Series(f"part {place}", f"c{place}", part) for place, part in enumerate(parts)]
    drawn = None if reference is None else Reference(reference, "the paper")
    return charts.stacked_bars("Title", list(range(1, len(parts[0]) + 1)), series, SIZES, drawn)


def test_parts_stand_on_each_other_to_scale() -> None:
    (column,) = bars([100.0], [300.0]).columns
    below, above = column.parts
    assert above.height == pytest.approx(3 * below.height, abs=0.02)
    assert below.y + below.height == pytest.approx(FLOOR, abs=0.02)
    assert above.y + above.height == pytest.approx(below.y, abs=0.02)
    assert column.tip == "Round 1: part 0 100\xa0B, part 1 300\xa0B"


def test_a_reference_is_to_scale_or_said_to_be_not() -> None:
    near = bars([100.0, 90.0], reference=150.0)
    assert near.reference is not None
    assert not near.reference.broken
    tall = near.columns[0].parts[0]
    assert (FLOOR - near.reference.y) / tall.height == pytest.approx(1.5, abs=0.01)
    far = bars([100.0, 90.0], reference=28300.0).reference
    assert far is not None
    assert far.broken
    assert far.label == "the paper, 283× the highest value"
    assert far.y < min(part.y for column in bars([100.0], reference=28300.0).columns for part in column.parts)


@given(st.lists(values, min_size=1, max_size=400), st.none() | st.floats(1, 1e15))
@example([999_999_999.0, 1_000_000_001.0], None)  # ticks half apart
@example([1e15 - 1, 1e15], None)
def test_everything_stays_inside(heights: list[float], reference: float | None) -> None:
    drawn = None if reference is None else Reference(reference, "x")
    rounds = list(range(7, 7 + len(heights)))
    for chart in (
        charts.stacked_bars("x", rounds, [Series("s", "c0", heights)], SIZES, drawn),
        charts.lines("x", rounds, [Series("s", "c0", heights)], NUMBERS, from_zero=False, reference=drawn),
        charts.lines("x", rounds, [Series("s", "c0", heights)], TIMES),
    ):
        for column in chart.columns:
            for rect in (column.hit, *column.parts):
                assert chart.left - 0.02 <= rect.x <= rect.x + rect.width <= chart.right + 0.02
                assert 0 <= rect.y <= rect.y + rect.height <= chart.bottom + 0.02
        for curve in chart.curves:
            for point in curve.points.split():
                x, y = map(float, point.split(","))
                assert chart.left <= x <= chart.right
                assert 0 <= y <= chart.bottom + 0.02
        assert 2 <= len(chart.y_ticks) <= 7
        assert len({tick.label for tick in chart.y_ticks}) == len(chart.y_ticks)
        assert 1 <= len(chart.x_ticks) <= charts.LABELS + 1
        assert chart.reference is None or 0 <= chart.reference.y <= chart.bottom


@given(st.floats(1e-6, 1e18))
def test_steps_are_round_and_enough(span: float) -> None:
    step = charts.decimal_step(span)
    assert charts.TICKS * step >= span * (1 - 1e-6)
    assert step <= span / charts.TICKS * 2.51
    digits = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert any(digits == pytest.approx(good) for good in (1, 2, 2.5, 5))


def test_rounds_without_a_value_leave_no_point() -> None:
    chart = charts.lines("x", [1, 2, 3], [Series("s", "c0", [5.0, None, 7.0])], NUMBERS, from_zero=False)
    assert len(chart.curves[0].points.split()) == 2
    assert [column.tip for column in chart.columns] == ["Round 1: s 5", "Round 3: s 7"]
    assert chart.description == "Rounds 1 to 3: 5 to 7, last 7."


def test_an_axis_has_one_unit() -> None:
    assert SIZES.ticks([0.0, 5e8, 1e9]) == ["0", "0.5\xa0GB", "1\xa0GB"]
    assert TIMES.ticks([0.0, 300.0, 600.0]) == ["0", "5\xa0min", "10\xa0min"]


@pytest.mark.parametrize(
    ("shown", "texts"),
    [
        (formats.size, {None: "–", 0: "0 B", 999: "999 B", 1023: "1.02 kB", 10**6: "1 MB", 183_217_612: "183 MB",
                        999_600_000: "1.00 GB", 1.5e9: "1.50 GB", 54.9e12: "54.9 TB", 1e18: "1,000 PB"}),
        (formats.seconds, {None: "–", 0.0: "0 s", 0.25: "0.25 s", 99.96: "100 s", 125: "2 min 5 s", 7260: "2 h 1 min",
                           90000: "1 d 1 h", -3.0: "0 s"}),
        (formats.number, {None: "–", 0.0: "0", 4.634: "4.634", 1e-9: "1e-09", 12345.6: "12,346"}),
    ],
)  # fmt: skip
def test_figures_as_text(shown: Callable[[float | None], str], texts: dict[float | None, str]) -> None:
    assert {value: shown(value).replace("\xa0", " ") for value in texts} == texts
