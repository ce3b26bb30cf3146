"""`phonograd report` over ledgers written by hand: what rounds cost, compared, and within a limit."""

import csv
import io
import json
from pathlib import Path

import pytest

from phonograd.server_agg.report.records import PhoneCost
from phonograd.server_agg.storage.ledger import WireBytes
from tests.server_agg.ledgers import a_ledger_with
from tests.support.command_line import Run


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """One open round: phone a sent 2 MB and fetched 30 MB, phone b sent 3 MB; TCP carried 1 MB more."""
    (tmp_path / "state").mkdir()
    return a_ledger_with(
        tmp_path / "state",
        ("a", "upload", WireBytes(up_headers=500, up_body=1_999_500, up_tcp=2_500_000)),
        ("a", "model", WireBytes(down_headers=1000, down_body=29_999_000, down_tcp=30_500_000)),
        ("b", "upload", WireBytes(up_body=3_000_000, up_tcp=3_500_000)),
    )


@pytest.fixture
def cheaper(tmp_path: Path) -> Path:
    """Half as much up, and a link in place of the model."""
    (tmp_path / "cheaper").mkdir()
    return a_ledger_with(
        tmp_path / "cheaper",
        ("a", "upload", WireBytes(up_body=2_500_000, up_tcp=None, down_tcp=None)),
        ("a", "link-top-rows", WireBytes(down_body=300_000, up_tcp=None, down_tcp=None)),
    )


def test_the_tables_have_bytes_of_both_directions(phono: Run, state: Path, cheaper: Path) -> None:
    shown = phono("report", "--state", state).out
    for figure in ("5 MB", "6 MB", "30 MB", "30.5 MB", "up p90", "TCP down"):
        assert figure in shown
    assert "top-rows 300 kB" in phono("report", "--state", cheaper).out


def test_a_price_is_for_what_tcp_carried_where_that_is_known(phono: Run, state: Path, cheaper: Path) -> None:
    price = phono("report", "--state", state, "--price-per-gb", "0.5", "--json").document["price"]
    (round_,) = price["rounds"]
    assert (round_["round"], round_["up_bytes"], round_["down_bytes"]) == (1, 6_000_000, 30_500_000)
    assert (price["totals"]["up"], price["totals"]["down"]) == pytest.approx((0.003, 0.01525))
    assert price["totals"]["both"] == pytest.approx(0.01825)
    assert "0.01825" in phono("report", "--state", state, "--price-per-gb", "0.5").out
    price = phono("report", "--state", cheaper, "--price-per-gb", "1", "--json").document["price"]
    assert (price["totals"]["up_bytes"], price["totals"]["down_bytes"]) == (2_500_000, 300_000)
    refused = phono("report", "--state", state, "--price-per-gb", "-1")
    assert (refused.code, "--price-per-gb" in refused.err) == (2, True)


def test_a_report_is_compared_with_a_folder_or_a_file(phono: Run, state: Path, cheaper: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(phono("report", "--state", state, "--price-per-gb", "1", "--json").out)
    for other in (state, saved):
        found = phono("report", "--state", cheaper, "--compare", other, "--json").document["comparison"]
        (round_,) = found["rounds"]
        assert round_["up_bytes"] == {"this": 2_500_000, "other": 5_000_000, "difference": -2_500_000, "ratio": 0.5}
        assert round_["down_bytes"]["ratio"] == pytest.approx(0.01)
        assert round_["phone_up_max_bytes"]["difference"] == -500_000
        assert round_["up_tcp_bytes"] == {"this": None, "other": 6_000_000, "difference": None, "ratio": None}
        assert round_["sent_link_bytes"]["ratio"] is None  # of nothing
        assert (found["with"], found["only_this"], found["only_other"]) == (str(other), [], [])
    shown = phono("report", "--state", cheaper, "--compare", saved).out
    assert "-2.50 MB" in shown
    assert "up ratio" in shown


def test_what_cannot_be_compared(phono: Run, state: Path, tmp_path: Path) -> None:
    report = phono("report", "--state", state, "--json").document
    other = tmp_path / "other.json"
    for text, message in (
        ("{", "not JSON"),
        ("[]", "version: expected 6, found None"),
        (json.dumps(report | {"version": 5}), "version: expected 6, found 5"),
        (json.dumps({"version": 6, "rounds": []}), "paper: missing"),
    ):
        other.write_text(text)
        refused = phono("report", "--state", state, "--compare", other)
        assert (refused.code, message in refused.err, "write it again" in refused.err) == (2, True, True), refused.err
    assert phono("report", "--state", state, "--compare", tmp_path / "nothing").code == 11


@pytest.mark.parametrize("form", [[], ["--csv"]])
def test_a_phone_that_sent_more_than_allowed_has_an_exit_code(phono: Run, state: Path, form: list[str]) -> None:
    within = phono("report", "--state", state, "--max-upload-mb", "3", *form)
    above = phono("report", "--state", state, "--max-upload-mb", "2.9", *form)
    assert (within.code, above.code) == (0, 28)
    assert within.out == above.out != ""
    assert "round 1: a phone sent 3 MB, expected at most 2.90 MB (--max-upload-mb)" in above.err


def test_the_phones_of_a_round_as_csv(phono: Run, state: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(phono("report", "--state", state, "--round", "1", "--csv").out)))
    assert {*lines[0]} == {*PhoneCost.__struct_fields__}
    assert list(lines[0])[:4] == ["phone", "state", "codec", "reason"]
    assert [(line["phone"], line["up_tcp_bytes"], line["model_bytes"]) for line in lines] == [
        ("a", "2500000", "29999000"),
        ("b", "3500000", "0"),
    ]


def test_options_that_do_not_go_together(phono: Run, state: Path) -> None:
    for options in (
        ("--csv", "--price-per-gb", "1"),
        ("--csv", "--compare", state),
        ("--csv", "--project", "10", "10"),
        ("--round", "1", "--price-per-gb", "1"),
        ("--round", "1", "--max-upload-mb", "1"),
    ):
        refused = phono("report", "--state", state, *options)
        assert (refused.code, f": expected without {options[0]}; run" in refused.err) == (2, True)


def test_a_round_that_is_not_there_is_refused(phono: Run, state: Path) -> None:
    assert len(phono("report", "--state", state, "--round", 1, "--json").document) == 2
    refused = phono("report", "--state", state, "--round", 99)
    assert (refused.code, refused.out) == (8, "")
    assert "round 99: not here; round 1 is the newest" in refused.err
