"""The ledger against the wire: every byte that a network between phones and server saw is in the report."""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.client.server_client import current_round, download_model, upload_update
from phonograd.server_agg.report.calculations import price_report
from phonograd.server_agg.report.document import (
    GIB,
    MIB,
    PAPER_GIB_PER_ROUND,
    PAPER_MIB_PER_PHONE,
    projection,
    read_phones,
    read_report,
)
from phonograd.server_agg.report.text import figure_rows, next_model_text, report_rows
from tests.server_agg.faults import adds_up
from tests.server_agg.http_uploads import final_report, headers_of, post
from tests.server_agg.relay import Relay, relay_to
from tests.server_agg.tus_phone import metadata
from tests.server_agg.workshop import RunningServer, Workshop, client_of


@pytest.fixture
def relay(server: RunningServer) -> Iterator[tuple[Relay, str]]:
    with relay_to(server.port) as relayed:
        yield relayed


@pytest.fixture
def http(server: RunningServer, relay: tuple[Relay, str]) -> Iterator[httpx.Client]:
    with client_of(relay[1], {"Authorization": f"Bearer {server.owner.token}"}) as client:
        yield client


def test_every_byte_on_the_wire_is_counted(
    server: RunningServer, workshop: Workshop, relay: tuple[Relay, str], http: httpx.Client, tmp_path: Path
) -> None:
    wire, url = relay
    full, rows = workshop.update(1), workshop.update(2, codec="rows-f32")
    size = full.stat().st_size
    current_round(url)
    download_model(url, tmp_path / "model", phone="phone1")
    http.get("/v1/model", headers={"Range": "bytes=0-99"})
    http.get("/v1/model", headers={"If-None-Match": f'"{workshop.base_sha256}"'})
    http.head("/v1/model")
    assert post(http, workshop.update(3, round=7), "phone3").status_code == 409
    assert post(http, full, "phone1").status_code == 201
    assert post(http, full, "phone1").status_code == 201  # its body is left unread
    upload_update(url, full, "phone1")  # so is this one
    last = upload_update(url, rows, "phone2")

    report = final_report(server)
    totals = report["totals"]
    assert totals["up_body_bytes"] + totals["up_header_bytes"] == wire.up
    assert totals["down_body_bytes"] + totals["down_header_bytes"] == wire.down
    assert totals["model_bytes"] == workshop.base_path.stat().st_size + 100
    assert adds_up(totals)

    closed, open_ = report["rounds"]
    assert (closed["accepted"], closed["repeated"], closed["rejected"], closed["upload_starts"]) == (2, 0, 1, 3)
    assert (closed["useful_bytes"], closed["retried_bytes"]) == (size + rows.stat().st_size, 2 * size)
    assert closed["rejected_bytes"] == workshop.update(3, round=7).stat().st_size
    assert closed["codecs"] == {
        "full-f32": {"updates": 1, "bytes": size},
        "rows-f32": {"updates": 1, "bytes": rows.stat().st_size},
    }
    assert closed["phone_ratio"] == pytest.approx(PAPER_MIB_PER_PHONE * MIB / (closed["useful_bytes"] / 2))
    model = workshop.base_path.stat().st_size
    assert closed["base_bytes"] == model
    assert closed["model_ratio"] == pytest.approx(2 * model / closed["useful_bytes"])
    assert closed["round_ratio"] == pytest.approx(PAPER_GIB_PER_ROUND * GIB / closed["useful_bytes"])
    assert closed["model_sha256"] == last.model_sha256 == open_["base_sha256"]
    assert 0 < closed["seconds_to_model"] <= closed["closed_at"] - closed["opened_at"]
    assert (open_["accepted"], open_["closed_at"], open_["phone_ratio"]) == (0, None, None)
    assert report["totals"]["rounds_closed"] == 1
    assert report["paper"] == {"mib_per_phone": 174.43, "gib_per_round": 1.70}


def test_phones_add_up_to_their_round(server: RunningServer, workshop: Workshop, http: httpx.Client) -> None:
    post(http, workshop.update(1), "phone1")
    post(http, workshop.update(3, round=7), "phone3")
    http.get("/v1/model", headers={"Phonograd-Phone": "phone9"})
    (entry,) = final_report(server)["rounds"]
    phones = {str(phone["phone"]): phone for phone in read_phones(server.state, 1)}
    assert {name: phone["state"] for name, phone in phones.items()} == {
        "phone1": "accepted",
        "phone3": "rejected",
        "phone9": None,
    }
    for name in ("useful_bytes", "rejected_bytes", "up_header_bytes", "down_body_bytes", "model_bytes", "requests"):
        assert sum(phone[name] for phone in phones.values()) == entry[name]


def test_the_report_over_http_is_the_folders(server: RunningServer, workshop: Workshop, http: httpx.Client) -> None:
    update = workshop.update(1)
    size = update.stat().st_size
    post(http, update, "phone1")
    assert http.get("/v1/report").json() == read_report(server.state)
    answer = http.get("/v1/report.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    (line,) = csv.DictReader(io.StringIO(answer.text))
    assert (line["round"], line["accepted"], line["useful_bytes"]) == ("1", "1", str(size))
    assert line["codecs"] == f"full-f32:1:{size}"
    (row,) = report_rows(http.get("/v1/report").json())
    assert "deployed" not in row and next_model_text(http.get("/v1/report").json()) == ""
    assert (row["updates"], row["model"], row["codecs"], row["seconds"]) == ("1/2", "open", "full-f32 x1", "")


def test_a_projection_is_today_s_uploads_and_the_model_once_for_each_phone_and_round(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    assert projection(final_report(server), 10, 300) is None
    for _ in range(3):  # one phone, three times: no measure of what others fetch
        http.get("/v1/model")
    post(http, workshop.update(1), "phone1")
    report = final_report(server)
    totals = report["totals"]
    projected = projection(report, 10, 300)
    assert projected is not None
    assert projected["up_bytes"] == 3000 * (totals["up_body_bytes"] + totals["up_header_bytes"])
    assert projected["paper_up_bytes"] == round(3000 * PAPER_MIB_PER_PHONE * MIB)
    assert projected["model_file_bytes"] == workshop.base_path.stat().st_size
    assert projected["down_bytes"] == 3000 * workshop.base_path.stat().st_size
    link = report["rounds"][0] | {"link_bytes": 700}
    followed = projection(report | {"rounds": [link, *report["rounds"]]}, 10, 300)
    assert followed is not None
    assert (projected["down_link_bytes"], followed["down_link_bytes"]) == (None, 3000 * 700)
    price = price_report(report, 2, followed)
    assert price["projection"]["down"] == pytest.approx(2 * projected["down_bytes"] / 10**9)
    assert price["projection_with_links"]["down"] == pytest.approx(2 * 3000 * 700 / 10**9)
    assert "projection_with_links" not in price_report(report, 2, projected)
    several = projection(report | {"rounds": [link | {"deploy_every": 7}]}, 10, 300)  # 43 models
    assert several is not None and (several["uploads"], several["down_link_bytes"]) == (3000, 430 * 700)
    assert several["down_bytes"] == 430 * projected["model_file_bytes"]
    assert projected["ratio"] == pytest.approx(projected["paper_up_bytes"] / projected["up_bytes"])


def test_a_terminal_reads_sizes_and_ratios() -> None:
    figures = {"up_bytes": 327_123_456_789_012, "uploads": 3_000_000, "late": 0, "codecs": {}}
    assert figure_rows("projected", figures) == [
        {"projected": "up bytes", "value": "327 TB"},
        {"projected": "uploads", "value": 3_000_000},
    ]


def test_a_late_update_is_told_apart(start_server: Callable[..., Any], workshop: Workshop) -> None:
    with start_server(clients_per_round=1) as server, client_of(server.url) as http:
        assert post(http, workshop.update(1), "phone1").status_code == 201
        late = post(http, workshop.update(2), "phone2")
        assert (late.status_code, late.headers["Retry-After"]) == (409, "60")
        assert "round 1, which is closed; round 2 is open" in late.json()["detail"]
        announced = http.post(
            "/v1/uploads",
            headers={**headers_of(b"", "phone3"), "Upload-Length": "100"}
            | {"Upload-Metadata": metadata(base_sha256=workshop.base_sha256)},
        )
        assert (announced.status_code, announced.headers["Retry-After"]) == (409, "60")
        report = final_report(server)
    open_ = report["rounds"][1]
    assert (open_["late"], open_["late_bytes"]) == (2, workshop.update(2).stat().st_size)


def test_what_is_refused_at_the_door_is_counted_too(
    server: RunningServer, relay: tuple[Relay, str], http: httpx.Client
) -> None:
    wire, _ = relay
    assert http.post("/v1/uploads", content=b"x" * 1000, headers=headers_of(b"x" * 1000, "no name!")).status_code == 400
    assert http.get("/v1/models/nonsense").status_code == 404
    totals = final_report(server)["totals"]
    assert totals["up_header_bytes"] + 1000 == wire.up
    assert totals["down_header_bytes"] + totals["down_body_bytes"] == wire.down
    assert totals["up_body_bytes"] == 0  # of uploads: nobody knows of whose this would have been
