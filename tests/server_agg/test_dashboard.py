"""The dashboard's pages and charts: whole with 0, 1 and many rounds, the report's numbers, no stranger's script."""

import contextlib
import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phonograd.server_agg.dashboard import charts, formats
from phonograd.server_agg.dashboard.charts import NUMBERS, SIZES, TIMES, Chart, Reference, Series
from phonograd.server_agg.dashboard.pages import CONTENT_SECURITY_POLICY
from phonograd.server_agg.dashboard.views import OUTCOMES, overview_charts
from phonograd.server_agg.report.document import projection, read_phones, read_report
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage.ledger import WireBytes
from phonograd.server_agg.storage.tables import Update
from tests.server_agg.dashboard_pages import PAGES, read, rows_of
from tests.server_agg.history import write_history
from tests.server_agg.http_uploads import post
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server

EVIL = "<script>alert('x')</script>\"'&\N{RIGHT-TO-LEFT OVERRIDE}"


def shown_size(nbytes: int) -> str:
    return formats.size(nbytes).replace("\xa0", " ")


@contextlib.contextmanager
def server_after(rounds: int, workshop: Workshop, state: Path) -> Iterator[httpx.Client]:
    write_history(workshop, state, rounds)
    with run_server(workshop, state, clients_per_round=10) as server, client_of(server.url) as client:
        yield client


@pytest.mark.parametrize("rounds", [0, 1, 110])
def test_pages_with_any_number_of_rounds(workshop: Workshop, state: Path, rounds: int) -> None:
    with server_after(rounds, workshop, state) as http:
        for path in PAGES:
            answer = http.get(path)
            assert answer.status_code == 200, path
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert answer.headers["cache-control"] == "no-store"
            page = read(answer.text)
            assert page.fetched or path == "/dashboard/live"  # which is a part of a page
            assert all(address.startswith(("/static/", "/dashboard/")) for address in page.fetched)
            assert not {name for name in page.attributes if name == "style" or name.startswith("on")}
        overview = http.get("/").text
        assert f"Round {rounds + 1} " in overview
        assert ("No round has closed yet" in overview) == (rounds == 0)
        assert overview.count('<figure class="card chart">') == (8 if rounds else 0)
        assert overview.count('<g class="column">') == {0: 0, 1: 8, 110: 6 * 110 + 2 * 37}[rounds]
        plain = overview.replace("\xa0", " ")
        assert ("paper P&#39;s 1.83 GB a round" in plain) and ("paper P&#39;s 183 MB a phone" in plain)


def test_every_round_is_on_a_page_once(workshop: Workshop, state: Path) -> None:
    with server_after(30, workshop, state) as http:
        seen, path = [], "/dashboard/rounds"
        while path:
            text = http.get(path).text
            seen += [int(row[0]) for row in rows_of(text) if row[0].isdigit()]
            following = re.search(r'rel="next" href="([^"]+)"', text)
            path = html.unescape(following[1]) if following else ""
        assert seen == list(range(31, 0, -1))
        assert http.get("/dashboard/rounds?page=9999").text.count("Page 2 of 2") == 1
        for bad in ("x", "-1", "", "1" * 10):
            refused = http.get("/dashboard/rounds", params={"page": bad})
            assert (refused.status_code, refused.headers["content-type"]) == (400, "application/problem+json")


def test_numbers_are_the_reports(server: RunningServer, workshop: Workshop) -> None:
    with client_of(server.url) as http:
        post(http, workshop.update(1), "phone1")
        post(http, workshop.update(1), "phone1")  # again
        post(http, workshop.update(3, round=7), "phone3")
        http.get("/v1/model", headers={"Phonograd-Phone": "phone2"})
        post(http, workshop.update(2, codec="rows-f32"), "phone2")
        http.get("/healthz")  # the bytes of TCP are known when the next request begins
        server.coordinator.ledger.count(1, "phone3", "link-top-rows", WireBytes(down_body=70))
        server.coordinator.ledger.flush()
        report = read_report(server.state)
        entry = report["rounds"][0]
        (row,) = [row for row in rows_of(http.get("/dashboard/rounds").text) if row[0] == "1"]
        cells = ("mean_bytes_per_phone", "useful_bytes", "retried_bytes")
        assert [row[4], row[7], row[8]] == [shown_size(entry[name]) for name in cells]
        assert row[2] == f"2 / 2{entry['rejected']} refused"
        assert [row[5], row[6]] == [formats.ratio(entry["model_ratio"]), formats.ratio(entry["phone_ratio"])]
        assert row[3] == "full-f32 ×1, rows-f32 ×1"
        assert row[10] == shown_size(entry["down_body_bytes"] + entry["down_header_bytes"])

        phones = read_phones(server.state, 1)
        shown = {row[0]: row for row in rows_of(http.get("/dashboard/rounds/1").text)}
        for phone in phones:
            found = shown[phone["phone"]]
            kinds = [f"{kind}_bytes" for kind in (*OUTCOMES, "model", "sent_link")]
            assert found[3:10] == [shown_size(phone[kind]) for kind in kinds]
            assert found[11] == shown_size(phone["up_tcp_bytes"] + phone["down_tcp_bytes"])
            assert found[2] == (phone["codec"] or "–")
        assert "is of round 7" in shown["phone3"][1]
        text = http.get("/dashboard/rounds/1").text.replace("\xa0", " ")
        assert "70 B: top-rows ×1" in text
        for way in ("up", "down"):
            p50, p90, most = (shown_size(entry[f"phone_{way}_{part}_bytes"]) for part in ("p50", "p90", "max"))
            assert f"{p50} (p50)" in text and f"{p90} (p90), {most} (most)" in text
        assert f"{shown_size(entry['up_tcp_bytes'])}, {shown_size(entry['down_tcp_bytes'])}" in text

        others = entry["down_body_bytes"] + entry["down_header_bytes"] - entry["model_bytes"] - 70
        (chart,) = [chart for chart in overview_charts(report) if chart.title == "Bytes downloaded per round"]
        tip = chart.columns[0].tip.replace("\xa0", " ")
        assert [size for size in map(shown_size, (entry["model_bytes"], 70, others)) if size not in tip] == []

        projected = projection(report, 7, 11)
        assert projected is not None
        text = http.get("/", params={"phones": "7", "rounds": "11"}).text
        assert f"<strong>{formats.size(projected['up_bytes'])}</strong> up" in text
        assert f"<strong>{formats.size(projected['down_bytes'])}</strong> down" in text


def test_the_open_round_as_it_stands(server: RunningServer, workshop: Workshop) -> None:
    with client_of(server.url) as http:
        upload = server.coordinator.create_upload(UploadMetadata("phone9", 4096, "0" * 64))
        server.coordinator.folder.upload(upload.id).write_bytes(b"\0" * 1024)
        text = http.get("/dashboard/live").text
        assert '<progress max="4096" value="1024" aria-label="Upload of phone9">1024 of 4096 bytes</progress>' in text
        assert "1.02 kB of 4.10 kB" in text.replace("\xa0", " ")
        assert 'data-said="Round 1: 0 of 2 updates accepted"' in text
        post(http, workshop.update(1), "phone1")
        assert 'data-said="Round 1: 1 of 2 updates accepted"' in http.get("/dashboard/live").text
        assert "1 of 2" in http.get("/").text  # the same without a script
        for number in range(10, 34):
            server.coordinator.create_upload(UploadMetadata(f"phone{number}", 4096, f"{number:064x}"))
        text = http.get("/dashboard/live").text
    assert text.count("<li>") == 20  # no more are shown
    assert "<strong>25</strong> uploads in progress" in text
    assert "and 5 more" in text


def test_what_strangers_write_is_text(workshop: Workshop, tmp_path: Path) -> None:
    """Names are checked when they come in; a ledger that holds worse all the same harms no reader."""
    write_history(workshop, tmp_path / "state", 2, metrics=(EVIL,), codecs={EVIL: 1000})
    with run_server(workshop, tmp_path / "state") as server, client_of(server.url) as http:
        server.coordinator.ledger.count(1, EVIL, "upload", WireBytes(1, 1, 1, 1))
        with server.coordinator.ledger.writing() as session:
            for number, state in ((1, "rejected"), (3, "receiving")):
                session.add(
                    Update(
                        id=state, round=number, phone=EVIL, state=state, length=1, received_bytes=1, requests=1,
                        created_at=server.coordinator.ledger.clock(), codec=EVIL, reason=EVIL,
                    )
                )  # fmt: skip
        texts = {path: http.get(path).text for path in PAGES}
    for text in texts.values():
        read(text)
        assert "<script>alert" not in text
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    escaped = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34;&#39;&amp;\N{REPLACEMENT CHARACTER}"
    found = {path: text.count(escaped) for path, text in texts.items()}
    assert found["/"] >= 6  # tile, caption, tips, legend, codec table
    assert all(found[path] for path in PAGES), found


def test_rounds_and_files_that_are_not_here(server: RunningServer) -> None:
    with client_of(server.url) as http:
        for path in (
            "/dashboard/rounds/2", "/dashboard/rounds/0", "/dashboard/rounds/x", f"/dashboard/rounds/{10**30}",
            "/static/none", "/static/..%2fpages.py", "/static/%2e%2e", "/dashboard",
        ):  # fmt: skip
            answer = http.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path


def test_files_are_kept_until_they_change(server: RunningServer) -> None:
    with client_of(server.url) as http:
        for name, kind in (("dashboard.css", "text/css"), ("live.js", "text/javascript"), ("icon.svg", "image/svg")):
            answer = http.get(f"/static/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = http.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_a_rolled_back_model_is_off_the_line(server: RunningServer, workshop: Workshop) -> None:
    with client_of(server.url) as http:
        for seed in (1, 2):
            post(http, workshop.update(seed), f"phone{seed}")
        server.coordinator.rollback(0)
        made, exported = [row for row in rows_of(http.get("/dashboard/models").text) if row[0] != "Round"]
        assert made[0] == "○ 1 rolled back"
        assert exported[0] == "● exported current"
        assert "rolled back" in http.get("/dashboard/rounds").text


FLOOR = charts.HEIGHT - charts.BOTTOM
values = st.floats(0, 1e15) | st.integers(0, 10**15).map(float)


def bars(*parts: list[float], reference: float | None = None) -> Chart:
    series = [Series(f"part {place}", f"c{place}", part) for place, part in enumerate(parts)]
    paper = None if reference is None else Reference(reference, "the paper")
    return charts.stacked_bars("Title", list(range(1, len(parts[0]) + 1)), series, SIZES, paper)


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
@example([5e-324], None)
def test_everything_stays_inside(heights: list[float], reference: float | None) -> None:
    paper = None if reference is None else Reference(reference, "x")
    rounds = list(range(7, 7 + len(heights)))
    for chart in (
        charts.stacked_bars("x", rounds, [Series("s", "c0", heights)], SIZES, paper),
        charts.lines("x", rounds, [Series("s", "c0", heights)], NUMBERS, from_zero=False, reference=paper),
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


def test_rounds_without_a_value_leave_no_point() -> None:
    chart = charts.lines("x", [1, 2, 3], [Series("s", "c0", [5.0, None, 7.0])], NUMBERS, from_zero=False)
    assert len(chart.curves[0].points.split()) == 2
    assert [column.tip for column in chart.columns] == ["Round 1: s 5", "Round 3: s 7"]
    assert chart.description == "Rounds 1 to 3: 5 to 7, last 7."


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
