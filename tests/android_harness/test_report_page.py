"""The page as a file: well formed, self-contained, escaped, and the same for the same report."""

import functools
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from phonograd.android_harness.phones.facts import Battery
from phonograd.android_harness.report.compare import Comparison, compare
from phonograd.android_harness.report.page import page
from phonograd.android_harness.result import Failure, PhoneBenchReport
from tests.android_harness.reports import HOSTILE, SMALL, both_layers, lost_phone, phone, quiet_facts, report, swept

VOID = {"meta", "link", "br", "img", "input", "hr"}
PAPER_LABEL = "the paper's phone: 140 s"


class Page(HTMLParser):
    """Elements with their attributes, and texts; every element is closed in its turn."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), (tag, attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)

    def all_of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def hostile() -> PhoneBenchReport:
    workload = replace(SMALL, model=HOSTILE, text=HOSTILE)
    found = report(phone(HOSTILE, HOSTILE, failure=Failure(HOSTILE, 21), epochs=1, steps=2), workload=workload)
    return replace(found, settings={HOSTILE: HOSTILE}, created=HOSTILE, adb_version=HOSTILE)


def mixed_report() -> tuple[PhoneBenchReport, Comparison]:
    """A phone with both output layers, one that throttled and swept, one that failed; and an old report."""
    old = report(phone(steps=4), phone("C", "gone", steps=4))
    new = report(both_layers(steps=4, step_seconds=7.75), swept(serial="B", model="Pixel 8", hot=True), lost_phone())
    return new, compare(old, new)


QUIET = replace(quiet_facts(), model="$\\frac$ 漢字 📱", memory_bytes=10**9, battery=Battery(50, None, False))


@functools.cache
def draw_page(name: str) -> str:
    """A page; drawing takes a while."""
    if name == "mixed":
        return page(*mixed_report(), 0.1)
    if name == "hostile":
        return page(hostile(), compare(hostile(), hostile()), 0.1)
    if name == "quiet":
        return page(report(phone(facts=QUIET, samples=(), codecs=(), pushed=None, epochs=1, steps=1)))
    return page(report())


@pytest.mark.parametrize("name", ["mixed", "hostile", "quiet", "no phone"])
def test_pages_are_well_formed_and_self_contained(name: str) -> None:
    text = draw_page(name)
    found = Page(text)
    assert text.startswith("<!doctype html>")
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "base", "form", "image"}
    assert len(found.all_of("style")) == 1
    assert found.all_of("link") == [{"rel": "icon", "href": "data:,"}]
    ids = Counter(attributes["id"] for _, attributes in found.elements if "id" in attributes)
    assert max(ids.values(), default=1) == 1
    for tag, attributes in found.elements:
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
        for key in ("src", "href", "action", "srcset", "xlink:href"):
            assert attributes.get(key, "#").startswith("#") or attributes[key] == "data:,"
        assert re.search(r"url\((?!#)", attributes.get("style", "")) is None
        named = attributes.get("aria-labelledby", "").split()
        named += [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        named += [at for value in attributes.values() for at in re.findall(r"url\(#([^)]+)\)", value)]
        assert set(named) <= ids.keys()
    assert "http:" not in text and "https:" not in text and "@import" not in text
    text.encode()


def test_every_plot_is_there_and_says_what_it_shows() -> None:
    found = Page(draw_page("mixed"))
    whole = ["compared", "epochs", "steps", "memory", "phases", "codecs"]
    plots = [*whole, "phone-1-timeline", "phone-2-timeline", "phone-2-sweep"]
    assert [plot["aria-labelledby"].split()[0] for plot in found.all_of("svg")] == [f"{plot}-title" for plot in plots]
    assert all(plot["role"] == "img" for plot in found.all_of("svg"))
    assert len(found.all_of("desc")) == len(plots)
    assert "Median seconds by phone: SM-A546B" in found.text
    for said in (PAPER_LABEL, "seconds per step", "°C", "GHz", "cores 0-3", "cores 4-7, used"):
        assert said in found.texts, said


def test_a_page_says_all_that_was_found() -> None:
    found = Page(draw_page("mixed"))
    text = found.text
    assert text.index("Comparison with the old report (new / old)") < text.index("Time of an epoch")
    for said in (
        *("epoch time, new / old", "yes", "only in the old report", "only in the new report"),
        *("the fastest is 4 on big,", "threads", "Output layers", "timed, sampled", "rows-f32, sampled 54.3 MB"),
        *("With the sampled output layer it was 2.50 times faster.", "output words", "2, sampled"),
        *("cd" * 32, "ab" * 32, "33" * 32, "cooldown_seconds", "180.0", "text.seed", "36.0.0-13206524", "s5e8835"),
        *("14 (API level 34, arm64-v8a)", "7.8 GB, 3.1 GB available", "81 %, 29.5 °C, charging"),
        "screen on, no doze, battery saver off; before: screen off, no doze, battery saver on",
        "epoch 3: cores 4-7 capped at 1,400 of 2,400 MHz",
        "failed: 0A1B2C3D: disconnected while weights.safetensors was pushed; plug it in again and rerun",
        "2 of 3 phones finished. An epoch took from ",
        "The paper's phone took 140 s for the same amount of work. 1 of the phones throttled.",
    ):
        assert said in text, said


def test_hostile_names_stay_text() -> None:
    text = draw_page("hostile")
    found = Page(text)
    assert found.all_of("script") == []
    assert "<script>alert(1)</script> [/bold] :smile: {{7*7}} $\\frac$" in found.text
    assert not set(text) & {"\x00", "\x1b", "\u202e", "\ud800"}
    assert "140 s" in found.text  # the column's head
    assert PAPER_LABEL not in found.text  # it is for the paper's work only
    assert "The workload is not the paper's" in found.text


def test_a_phone_that_reports_half_of_its_facts() -> None:
    text = Page(draw_page("quiet")).text
    assert "1 GB, – available" in text
    assert "50 %, – °C, not charging" in text
    assert draw_page.__wrapped__("quiet") == draw_page("quiet")  # the same report, the same page


def test_colours_are_the_pages_variables() -> None:
    styles = [attributes["style"] for tag, attributes in Page(draw_page("mixed")).elements if "style" in attributes]
    colours = set(re.findall(r"(?:fill|stroke): ([^;]+)", " ".join(f"{style};" for style in styles)))
    assert colours - {"none"}
    assert all(colour == "none" or colour.startswith("var(--") for colour in colours), colours
