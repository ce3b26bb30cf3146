"""The page of a phone bench in a real browser, on a desk's screen and on a phone's, light and dark.

PHONOGRAD_SHOTS=DIR keeps pictures of all pages for people to look at.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.android_harness.report.compare import compare
from phonograd.android_harness.report.page import write_page
from phonograd.android_harness.result import PhoneBenchReport
from tests.android_harness.reports import HOSTILE, SMALL, both_layers, lost_phone, many, phone, quiet_facts, report
from tests.support.chromium import Tab, chromium

pytestmark = pytest.mark.browser

SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
BACKGROUND = {False: "rgb(245, 246, 248)", True: "rgb(15, 20, 27)"}
LABEL = "[...document.querySelectorAll('svg text')].find(text => text.textContent === \"the paper's phone: 140 s\")"
# Within the plot and the screen, and not of the card's own colour.
LABEL_SHOWN = f"""(() => {{
  const label = {LABEL}.getBoundingClientRect(), plot = {LABEL}.closest("svg").getBoundingClientRect();
  const inside = label.left >= plot.left && label.right <= plot.right && label.top >= plot.top;
  return inside && label.width > 60 && label.right <= innerWidth && getComputedStyle({LABEL}).fill === COLOUR;
}})()"""
REFERENCE = {False: "rgb(163, 35, 15)", True: "rgb(255, 160, 138)"}
# Text of a plot that stands out of its picture.
CUT_OFF = """[...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), plot = text.closest('svg').getBoundingClientRect();
  return box.width && (box.left < plot.left - 1 || box.right > plot.right + 1 || box.bottom > plot.bottom + 1);
}).map(text => text.textContent)"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('svg text')].map(text =>
  parseFloat(getComputedStyle(text).fontSize) * text.closest('svg').getBoundingClientRect().width /
  text.closest('svg').viewBox.baseVal.width))"""

PAGES = {
    "none": report(lost_phone()),
    "four": report(
        phone("漢字", "漢字 📱 phone"),
        phone("B1", "Pixel 8", 1, step_seconds=0.8),
        phone(HOSTILE, HOSTILE, 2, step_seconds=30, hot=True),
        lost_phone(),
    ),
    "twenty": report(*many(19), both_layers(hot=True)),
    "one-step": report(
        phone(epochs=1, steps=1, step_seconds=0.2),
        phone("Q", facts=quiet_facts(), samples=(), codecs=()),
        workload=SMALL,
    ),
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@pytest.mark.parametrize(("name", "made"), PAGES.items(), ids=PAGES.keys())
def test_every_page_on_every_screen(tab: Tab, tmp_path: Path, name: str, made: PhoneBenchReport) -> None:
    comparison = compare(report(*many(3), phone()), made) if name == "four" else None
    write_page(tmp_path / "page.html", made, comparison, 0.1 if comparison else None)
    tab.open((tmp_path / "page.html").as_uri())
    for screen, (width, height) in SCREENS.items():
        for dark in (False, True):
            tab.resize(width, height, dark)
            # Tables scroll within themselves; the page is never wider than the screen.
            assert tab.value("document.documentElement.scrollWidth") == width
            assert tab.value("getComputedStyle(document.body).backgroundColor") == BACKGROUND[dark]
            assert tab.value(CUT_OFF) == []
            if name in ("four", "twenty"):
                assert tab.value(LABEL_SHOWN.replace("COLOUR", f"'{REFERENCE[dark]}'"))
                assert tab.value(SMALLEST_TEXT) >= 8.5
            else:
                assert not tab.value(f"Boolean({LABEL})")
            keep(tab, f"bench-{name}-{screen}-{'dark' if dark else 'light'}")
    assert tab.value("document.querySelectorAll('h1').length") == 1
    assert tab.value("document.querySelectorAll('table th:not([scope])').length") == 0
    assert tab.value("document.querySelectorAll('svg:not([role=img])').length") == 0
    assert tab.value("performance.getEntriesByType('resource').length") == 0
    assert tab.complaints == []


def keep(tab: Tab, name: str) -> None:
    """A picture, if anybody wants it."""
    if folder := os.environ.get("PHONOGRAD_SHOTS"):
        Path(folder).mkdir(exist_ok=True)
        tab.shoot(Path(folder) / f"{name}.png")
