"""The page as a file: well formed, self-contained, escaped, and the same for the same report."""

import functools
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from phonograd.android_harness.phones.facts import Battery
from phonograd.android_harness.report.compare import compare
from phonograd.android_harness.report.page import page
from phonograd.android_harness.result import Failure
from tests.android_harness.reports import SMALL, both_layers, failed, phone, quiet_facts, report, swept
from tests.android_harness.test_report_table import HOSTILE

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

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


MADE = {
    "two": report(phone(), phone("B", "Pixel 8")),
    "hot and failed": report(phone(hot=True), failed()),
    "no phone": report(),
    "odd names": report(phone("A", "$\\frac$ 漢字 📱"), phone("B", "\x00<b>")),
    "none finished": report(failed(), failed("B", None)),
    "hostile": report(phone(HOSTILE, HOSTILE, hot=True), failed(HOSTILE, HOSTILE)),
    "says nothing": report(phone(facts=quiet_facts(), samples=(), codecs=(), pushed=None, epochs=1, steps=1)),
    "both output layers": report(both_layers(), phone("B", "Pixel 8")),
    "other workload": report(phone(), workload=SMALL),
}


@functools.cache
def made(name: str) -> str:
    """The page of one of MADE; drawing takes a while."""
    return page(MADE[name])


@pytest.mark.parametrize("name", MADE)
def test_pages_are_well_formed_and_self_contained(name: str) -> None:
    text = made(name)
    found = Page(text)
    assert text.startswith("<!doctype html>")
    assert not {tag for tag, _ in found.elements} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "image",
    }
    assert len(found.named("style")) == 1
    assert found.named("link") == [{"rel": "icon", "href": "data:,"}]
    for tag, attributes in found.elements:
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
        for key in ("src", "href", "action", "srcset", "xlink:href"):
            assert attributes.get(key, "#").startswith("#") or attributes[key] == "data:,"
        assert re.search(r"url\((?!#)", attributes.get("style", "")) is None
    assert "http:" not in text and "https:" not in text and "@import" not in text
    text.encode()


@pytest.mark.parametrize("name", ["two", "hostile"])
def test_ids_are_unique_and_all_that_is_named_exists(name: str) -> None:
    found = Page(made(name))
    ids = Counter(attributes["id"] for _, attributes in found.elements if "id" in attributes)
    assert max(ids.values()) == 1
    for _, attributes in found.elements:
        named = attributes.get("aria-labelledby", "").split()
        named += [attributes["href"][1:]] if attributes.get("href", "").startswith("#") else []
        for value in attributes.values():
            named += re.findall(r"url\(#([^)]+)\)", value)
        assert set(named) <= ids.keys()


def test_a_sweep_and_a_comparison_are_drawn() -> None:
    new = report(swept(step_seconds=2.5, seed=1), phone("B", "Pixel 8"))
    old = report(phone(), phone("B", "Pixel 8", seed=2))
    found = Page(page(new, compare(old, new), 0.1))
    drawn = [plot["aria-labelledby"].split()[0] for plot in found.named("svg")]
    assert drawn[0] == "compared-title"
    assert "phone-1-sweep-title" in drawn
    assert "phone-2-sweep-title" not in drawn
    assert "epoch time, new / old" in found.texts
    assert re.search(
        r"Median epoch, new over old, by phone: SM-A546B \(R5CT10ABCDE\) 1\.\d{3} \(1\.\d{3} to 1\.", found.text
    )
    assert "the fastest is 4 on big," in found.text
    assert "threads" in found.texts


def test_every_plot_is_there_and_says_what_it_shows() -> None:
    found = Page(made("two"))
    assert [plot["aria-labelledby"].split()[0] for plot in found.named("svg")] == [
        "epochs-title",
        "steps-title",
        "memory-title",
        "phases-title",
        "codecs-title",
        "phone-1-timeline-title",
        "phone-2-timeline-title",
    ]
    assert all(plot["role"] == "img" for plot in found.named("svg"))
    assert len(found.named("desc")) == 7
    assert "Median seconds by phone: SM-A546B 32.67 s, Pixel 8 32.67 s; the paper's phone took 140 s." in found.text
    for said in (
        PAPER_LABEL,
        "seconds per step",
        "°C",
        "GHz",
        "cores 0-3",
        "cores 4-7, used",
        "MB per update (logarithmic)",
    ):
        assert said in found.texts, said


def test_both_output_layers_are_drawn() -> None:
    text = Page(made("both output layers")).text
    for said in (
        "An epoch took from 32.67 s on Pixel 8 (B) to 32.67 s on SM-A546B (R5CT10ABCDE).",
        "With the sampled output layer it was 2.50 times faster.",
        "Median seconds by phone: SM-A546B 32.67 s, SM-A546B, sampled 13.07 s, Pixel 8 32.67 s;",
        "Output layers",
        "timed, sampled",
        "rows-f32, sampled 54.3 MB",
        "output words",
        "2, sampled",
    ):
        assert said in text, said
    alone = Page(page(report(both_layers().with_output_layer("sampled")))).text
    assert "An epoch took 13.07 s." in alone
    assert "times faster" not in alone


def test_the_papers_line_is_drawn_for_the_papers_work_only() -> None:
    assert PAPER_LABEL in Page(made("two")).text
    other = Page(made("other workload")).text
    assert "140 s" in other  # the column's head
    assert PAPER_LABEL not in other
    assert "The workload is not the paper's" in other


def test_the_page_names_settings_hashes_facts_failures_and_throttling() -> None:
    text = Page(made("hot and failed")).text
    for said in (
        "cd" * 32,
        "ab" * 32,
        "33" * 32,
        "cooldown_seconds",
        "180.0",
        "text.seed",
        "36.0.0-13206524",
        "s5e8835",
        "14 (API level 34, arm64-v8a)",
        "7.8 GB, 3.1 GB available",
        "81 %, 29.5 °C, charging",
        "screen on, no doze, battery saver off; before: screen off, no doze, battery saver on",
        "epoch 3: cores 4-7 capped at 1,400 of 2,400 MHz",
        "failed: 0A1B2C3D: disconnected while weights.safetensors was pushed; plug it in again and rerun",
        "1 of 2 phones finished. An epoch took ",
        "The paper's phone took 140 s for the same amount of work. 1 of the phones throttled.",
    ):
        assert said in text, said


def test_hostile_names_stay_text() -> None:
    workload = replace(SMALL, model=HOSTILE, text=HOSTILE)
    bad = report(phone(HOSTILE, HOSTILE, failure=Failure(HOSTILE, 21)), workload=workload)
    bad = replace(bad, settings={HOSTILE: HOSTILE}, created=HOSTILE, adb_version=HOSTILE)
    text = page(bad, compare(bad, bad), 0.1)
    found = Page(text)
    assert found.named("script") == []
    assert "<script>alert(1)</script> [/bold] :smile: {{7*7}} $\\frac$" in found.text
    assert not set(text) & {"\x00", "\x1b", "\u202e", "\ud800"}


def test_the_same_report_gives_the_same_page() -> None:
    assert page(MADE["two"]) == made("two")


def test_the_page_begins_with_the_comparison() -> None:
    new = report(phone("A", "one", step_seconds=2.5, seed=1), phone("B", "two"))
    text = Page(page(new, compare(report(phone("A", "one"), phone("C", "gone")), new), 0.1)).text
    assert text.index("Comparison with the old report (new / old)") < text.index("Time of an epoch")
    for said in ("epochs", "yes", "only in the old report", "only in the new report"):
        assert said in text


def test_colours_are_the_pages_variables() -> None:
    """In light and dark alike: no colour of matplotlib's is left in a plot."""
    styles = [attributes["style"] for tag, attributes in Page(made("hot and failed")).elements if "style" in attributes]
    colours = set(re.findall(r"(?:fill|stroke): ([^;]+)", " ".join(f"{style};" for style in styles)))
    assert colours - {"none"}
    assert all(colour == "none" or colour.startswith("var(--") for colour in colours), colours


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio of two #rrggbb."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast() -> None:
    """Text at least 4.5, what plots draw at least 3, on the cards they stand on."""
    blocks = re.findall(r":root \{(.*?)\}", page(report()), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        colours = {
            name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:])
            for name, value in re.findall(r"--([\w-]+): (#\w+)", block)
        }
        for text in ("ink", "soft", "accent", "reference"):
            assert contrast(colours[text], colours["card"]) >= 4.5, text
            assert contrast(colours[text], colours["page"]) >= 4.5, text
        for badge in ("good", "bad", "warm"):
            assert contrast(colours[badge], colours[f"{badge}-back"]) >= 4.5, badge
        for series in (f"c{number}" for number in range(8)):
            assert contrast(colours[series], colours["card"]) >= 3, series


def test_a_phone_that_reports_half_of_its_facts() -> None:
    facts = replace(quiet_facts(), model="X", memory_bytes=10**9, battery=Battery(50, None, False))
    text = Page(page(report(phone(facts=facts)))).text
    assert "1 GB, – available" in text
    assert "50 %, – °C, not charging" in text
