"""What rounds cost, from ledgers that were written by hand: percentiles over phones."""

import contextlib
import csv
import io
from pathlib import Path
from typing import Any, get_args

import pytest

from phonograd.device_runtime.update.links import LinkCodec
from phonograd.server_agg.report.document import read_phones, read_report
from phonograd.server_agg.report.text import phones_csv, report_csv
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import LINK_KINDS
from tests.server_agg.ledgers import a_ledger_with


def percentiles(state: Path) -> tuple[list[Any], list[Any]]:
    """The p50, p90 and most of the only round, up and down."""
    (entry,) = read_report(state)["rounds"]
    up, down = ([entry[f"phone_{way}_{name}_bytes"] for name in ("p50", "p90", "max")] for way in ("up", "down"))
    return up, down


def test_percentiles_are_those_of_phones_by_nearest_rank(tmp_path: Path) -> None:
    assert percentiles(a_ledger_with(tmp_path)) == ([None] * 3, [None] * 3)
    (tmp_path / "one").mkdir()
    one = a_ledger_with(tmp_path / "one", ("a", "upload", WireBytes(up_headers=1, up_body=6)))
    assert percentiles(one) == ([7] * 3, [None] * 3)
    (tmp_path / "many").mkdir()
    phones = [f"phone{n}" for n in range(1, 17)]
    sent = [(phone, "upload", WireBytes(10, 1000 * n, 20, 30)) for n, phone in enumerate(phones, 1)]
    fetched = [(phone, "model", WireBytes(10, 0, 200, 10**6 * n)) for n, phone in enumerate(phones[:4], 1)]
    many = a_ledger_with(tmp_path / "many", *sent, *fetched)
    # The 8th, 15th and 16th of 16 uploads; the 2nd, 4th and 4th of 4 downloads, with the answers to their uploads.
    assert percentiles(many) == ([8010, 15_010, 16_010], [2_000_250, 4_000_250, 4_000_250])


def test_percentiles_are_over_the_phones_that_sent_or_fetched(tmp_path: Path) -> None:
    state = a_ledger_with(
        tmp_path,
        ("a", "upload", WireBytes(up_headers=100, up_body=5000)),
        ("a", "round", WireBytes(up_headers=50, down_body=70)),
        ("b", "upload", WireBytes(up_headers=80)),  # refused before it sent a byte
        ("b", "round", WireBytes(up_headers=50, down_body=70)),
        ("c", "model", WireBytes(up_headers=60, down_headers=9)),  # has the model already
        ("", "upload", WireBytes(up_body=10**9)),
        ("", "model", WireBytes(down_body=10**9)),
        ("d", "refused", WireBytes(up_body=10**9)),
    )
    assert percentiles(state) == ([5150] * 3, [9] * 3)


def test_models_and_links_are_told_apart_by_codec(tmp_path: Path) -> None:
    assert set(LINK_KINDS) == set(get_args(LinkCodec))
    state = a_ledger_with(
        tmp_path,
        ("a", "model", WireBytes(down_headers=200, down_body=9000)),
        ("a", "link-rows-f32", WireBytes(down_headers=200, down_body=500)),
        ("b", "link-rows-f32", WireBytes(down_headers=200, down_body=600)),
        ("b", "link-top-rows", WireBytes(down_headers=200, down_body=70)),
    )
    report = read_report(state)
    (entry,) = report["rounds"]
    assert entry["sent_links"] == {
        "rows-f32": {"requests": 2, "bytes": 1100},
        "top-rows": {"requests": 1, "bytes": 70},
    }
    for of in (entry, report["totals"]):
        assert (of["model_bytes"], of["sent_link_bytes"], of["down_body_bytes"]) == (9000, 1170, 10_170)
    assert [phone["sent_link_bytes"] for phone in read_phones(state, 1)] == [500, 670]
    (line,) = csv.DictReader(io.StringIO(report_csv(report)))
    assert line["sent_links"] == "rows-f32:2:1100 top-rows:1:70"
    assert percentiles(state)[1] == [1070, 9900, 9900]  # who fetched links alone has downloaded too


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(tmp_path: Path, begin: str) -> None:
    state = a_ledger_with(tmp_path, ("a", "model", WireBytes(down_body=-5)))
    phones = [phone | {"phone": f"{begin}1+1"} for phone in read_phones(state, 1)]
    (line,) = csv.DictReader(io.StringIO(phones_csv(phones), newline=""))
    assert (line["phone"], line["model_bytes"]) == (f"'{begin}1+1", "-5")
    report = read_report(state)
    report["rounds"][0] |= {"quality": {f"{begin}1": -0.5}, "distance": -0.5}
    (line,) = csv.DictReader(io.StringIO(report_csv(report), newline=""))
    assert (line["quality"], line["distance"]) == (f"'{begin}1:-0.5", "-0.5")


@pytest.mark.parametrize("phone", ["a", "b"])  # in the same row of the ledger, and in another of the same kind
def test_tcp_bytes_that_are_not_known_of_all_requests_are_not_given(tmp_path: Path, phone: str) -> None:
    known, unknown = WireBytes(1, 2, 3, 4, up_tcp=50, down_tcp=60), WireBytes(1, 2, 3, 4, up_tcp=None, down_tcp=None)
    state = a_ledger_with(tmp_path, ("a", "upload", known), ("a", "round", known))
    assert tcp_of(state) == [(100, 120), (100, 120)]
    for wire in (unknown, known):
        with contextlib.closing(Ledger(state / "ledger.sqlite")) as ledger:
            ledger.count(1, phone, "upload", wire)
            ledger.flush()
        assert tcp_of(state) == [(None, None), (None, None)]
    of_phones = {each["phone"]: each["up_tcp_bytes"] for each in read_phones(state, 1)}
    assert of_phones == ({"a": None} if phone == "a" else {"a": 100, "b": None})


def tcp_of(state: Path) -> list[tuple[int | None, int | None]]:
    """Bytes of TCP up and down, of the round and in all."""
    report = read_report(state)
    return [(of["up_tcp_bytes"], of["down_tcp_bytes"]) for of in (report["rounds"][0], report["totals"])]
