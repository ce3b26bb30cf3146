"""The JSON document: what is written is read back, fits its schema, and whatever else is refused by name."""

import json
import math
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from phonograd.android_harness.errors import ReportError
from phonograd.android_harness.report.compare import compare
from phonograd.android_harness.report.document import from_document, read_report, schema, to_document, write_report
from phonograd.android_harness.result import Epoch, PhoneBenchReport, Step
from phonograd.device_runtime.base.documents import Record
from tests.android_harness.reports import SMALL, both_layers, lost_phone, phone, quiet_facts, report

VALIDATOR = jsonschema.Draft202012Validator(dict(schema()))


@pytest.mark.parametrize("made", [report(), report(both_layers(), lost_phone(), phone(facts=quiet_facts()))])
def test_documents_fit_their_schema(made: PhoneBenchReport, tmp_path: Path) -> None:
    write_report(tmp_path / "bench.json", made)
    VALIDATOR.validate(json.loads((tmp_path / "bench.json").read_text("utf-8")))
    assert read_report(tmp_path / "bench.json") == made


def test_a_comparison_is_written_but_not_read(tmp_path: Path) -> None:
    new = report(phone("SERIAL00000", "SM-A546B", step_seconds=3.0), lost_phone())
    comparison = compare(report(phone("SERIAL00000", "SM-A546B", epochs=1), phone("gone")), new)
    write_report(tmp_path / "bench.json", new, comparison)
    document = json.loads((tmp_path / "bench.json").read_text("utf-8"))
    VALIDATOR.validate(document)
    (pair,) = document["comparison"]["phones"]
    assert pair["time"]["basis"] == "steps"
    assert pair["time"]["low"] < pair["time"]["ratio"] < pair["time"]["high"]
    assert document["comparison"]["missing"] == ["SM-A546B (gone)"]
    assert read_report(tmp_path / "bench.json") == new


def test_whole_numbers_are_valid_seconds() -> None:
    """Other programs write 2.0 as 2."""
    document = to_document(report(phone()))
    document["phones"][0]["epochs"][0]["cooled_seconds"] = 20
    cooled = from_document(document).phones[0].epochs[0].cooled_seconds
    assert (cooled, type(cooled)) == (20.0, float)


def test_the_summary_says_what_a_script_would_compute() -> None:
    one = phone(epochs=3, hot=True)
    row = to_document(report(one))["summary"][0]
    seconds = sorted(epoch.seconds for epoch in one.timed)
    assert row["epoch_seconds"]["median"] == seconds[1]
    assert seconds[0] < row["epoch_seconds"]["p10"] < seconds[1] < row["epoch_seconds"]["p90"] < seconds[2]
    assert (row["epoch_seconds"]["count"], row["step_seconds"]["count"]) == (3, 60)
    assert row["paper_ratio"] == pytest.approx(seconds[1] / 140)
    assert row["tokens_per_s"] == pytest.approx(3895 / seconds[1])
    assert row["peak_rss_bytes"] == max(epoch.peak_rss_bytes for epoch in one.timed)
    assert row["loss_first"] > row["loss_last"]
    assert list(row["phases"]) == ["embedding", "lstm", "output layer", "update"]
    assert sum(row["phases"].values()) == pytest.approx(row["step_seconds"]["median"], rel=0.05)
    assert row["throttled"]
    assert to_document(report(one, workload=SMALL))["summary"][0]["paper_ratio"] is None
    assert to_document(report(lost_phone()))["summary"][0]["epoch_seconds"] is None


def test_the_summary_has_a_row_for_each_output_layer() -> None:
    full, sampled, other = to_document(report(both_layers(), phone("B")))["summary"]
    assert full["output_layer"] == other["output_layer"] == {"kind": "full", "words": 30_000}
    assert sampled["output_layer"] == {"kind": "sampled", "words": 3_495}
    assert (full["times_faster"], sampled["times_faster"], other["times_faster"]) == (None, pytest.approx(2.5), None)
    assert (full["update_bytes"]["rows-f32"], sampled["update_bytes"]["rows-f32"]) == (108_512_004, 54_256_002)
    assert (full["epoch_seconds"]["count"], sampled["epoch_seconds"]["count"]) == (3, 3)


SAMPLE_DOCUMENT = json.loads(json.dumps(to_document(report(phone(epochs=1, steps=2, hot=True)))))


def with_value(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The sample document with another value at the path; Ellipsis takes the field away."""
    document: dict[str, Any] = json.loads(json.dumps(SAMPLE_DOCUMENT))
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def describe_path(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


@pytest.mark.parametrize("kind", [PhoneBenchReport, Epoch, Step], ids=lambda kind: kind.__name__)
def test_missing_and_unknown_fields_are_named(kind: type[Record]) -> None:
    folder = {PhoneBenchReport: (), Epoch: ("phones", 0, "epochs", 0), Step: ("phones", 0, "epochs", 0, "steps", 0)}[
        kind
    ]
    for field in kind.__struct_fields__:
        path = (*folder, field)
        with pytest.raises(ReportError, match=f"^{re.escape(describe_path(path))}: missing"):
            from_document(with_value(path, ...))
    with pytest.raises(ReportError, match=f"^{re.escape(describe_path((*folder, 'colour')))}: no such field"):
        from_document(with_value((*folder, "colour"), "red"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("phones", 0, "epochs", 0, "seconds"), 0, "seconds: expected a number >= 1e-09, found 0"),
        (("phones", 0, "epochs", 0, "peak_rss_bytes"), -1, "peak_rss_bytes: expected a whole number >= 0, found -1"),
        (("phones", 0, "epochs", 0, "tokens"), 2.5, "expected a whole number, found 2.5"),
        (("phones", 0, "fixed_performance"), 1, "expected true or false, found 1"),
        (("workload", "minibatch"), 2**53 + 1, "expected a whole number <= 9007199254740992, found 9007199254740993"),
        (("workload", "manifest_sha256"), "ab" * 32 + "\n", "expected a string of length <= 64"),
        (("phones", 0, "epochs", 0, "cooling"), "cold", "expected 'cool' or 'limit' or"),
        (("phones", 0, "samples", 0, "caps_khz"), {"07": 1}, "caps_khz: expected as a key a whole number, found '07'"),
        (("phones", 0, "samples", 0, "caps_khz"), {"0": 1, "4": -1, "5": 2}, r"caps_khz\.4: .* >= 0, found -1"),
        (("workload", "manifest_sha256"), "AB", r"expected a string matching regex '\^\[0-9a-f\]\{64\}\$', found 'AB'"),
        (("phones", 0, "failure"), [], "failure: expected an object or null, found \\[\\]"),
        (("settings",), {"a": [{"b": math.nan}]}, r"settings\.a\[0\]\.b: expected a finite number"),
    ],
)
def test_values_out_of_bounds_are_refused(path: tuple[Any, ...], value: Any, said: str) -> None:
    with pytest.raises(ReportError, match=said):
        from_document(with_value(path, value))


def test_values_at_their_bounds_are_taken() -> None:
    epoch = ("phones", 0, "epochs", 0)
    for path, value in (
        ((*epoch, "seconds"), 1e-9),
        ((*epoch, "peak_rss_bytes"), 0),
        (("workload", "minibatch"), 2**53),
    ):
        from_document(with_value(path, value))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "expected a JSON object with schema 'phonograd.phone-bench', found 'list'"),
        ({"schema": "other"}, "found 'other'"),
        ({"schema": "phonograd.phone-bench", "schema_version": 2}, "found 2; run the bench again"),
        ({"schema": "phonograd.phone-bench", "schema_version": True}, "expected 5, found True"),
        ({"schema": "phonograd.phone-bench", "schema_version": 6}, "found 6; a newer phonograd wrote it: upgrade"),
    ],
)
def test_other_documents_are_refused(document: Any, said: str) -> None:
    with pytest.raises(ReportError, match=said):
        from_document(document)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (json.dumps(with_value(("phones", 0, "epochs", 0, "loss_last"), math.nan)).encode(), "holds NaN"),
        (b'{"schema": 1, "a": {"b": 1, "c": 2, "b": 3}}', "has the key 'b' twice in one object"),
        (json.dumps(with_value(("created",), 5)).encode(), "created: expected a string, found 5; if it was edited"),
    ],
)
def test_hostile_files_are_refused_by_name(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=re.escape(str(path)) + ".*" + said) as refused:
        read_report(path)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 25


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"old\.json: cannot be read: No such file"):
        read_report(tmp_path / "old.json")


def test_nan_and_infinity_are_not_written() -> None:
    one = phone()
    bad = replace(one, epochs=(replace(one.epochs[0], loss_last=math.nan),))
    with pytest.raises(ReportError, match=r"phones\[0\]\.epochs\[0\]\.loss_last: expected a finite number, found nan"):
        to_document(report(bad))
    with pytest.raises(ReportError, match=r"settings\.user: expected a JSON value, found PosixPath"):
        to_document(report(one, user=Path("user.txt")))
