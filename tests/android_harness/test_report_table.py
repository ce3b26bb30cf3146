"""The tables on a terminal: what they say, and that they stay narrow whatever phones call themselves."""

from typing import Any

import pytest
from msgspec.structs import replace

from phonograd.android_harness.report.compare import compare
from phonograd.android_harness.report.names import phone_name, printable, short_names
from phonograd.android_harness.report.table import comparison_tables, remarks, tables
from phonograd.android_harness.result import Failure, PhoneBenchReport, Placement
from phonograd.console import Console
from tests.android_harness.reports import (
    HOSTILE,
    PAPERS,
    SMALL,
    both_layers,
    facts,
    lost_phone,
    many,
    phone,
    quiet_facts,
    report,
    swept,
    with_codecs,
)


def print_tables(capsys: pytest.CaptureFixture[str], *found: Any) -> str:
    Console(as_json=False, quiet=True).result(None, *found)
    return capsys.readouterr().out


def test_a_row_has_the_figures() -> None:
    one = phone(epochs=3)
    (_, (times,)), (_, (nbytes,)), *_, (_, codecs) = tables(report(one))
    median = sorted(epoch.seconds for epoch in one.timed)[1]
    assert times == {
        "phone": "SM-A546B\nR5CT10ABCDE",
        "threads": "4 on 4-7",
        "epoch s": round(median, 3),
        "step s": times["step s"],
        "x of 140 s": round(median / 140, 3),
        "tokens/s": round(3895 / median, 3),
        "loss": "6.91 → 5.77",
        "max °C": times["max °C"],
        "throttled": "no",
    }
    assert nbytes == {
        "phone": "SM-A546B\nR5CT10ABCDE",
        "peak MB": pytest.approx(242.2, abs=0.3),
        "pushed MB": 1.137,
        "files pushed": "2 of 3",
        "rows-f32 MB": 108.512,
        "smallest MB": 1.105,
        "by codec": "top-rows",
    }
    assert codecs[1] == {
        "codec": "rows-f32", "MB": 108.512, "times smaller": 1.688, "encoding s": 0.671, "phones": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "papers"),
    [
        ({}, True),
        ({"tokens": 1000}, False),
        ({"parameters": 1_347_072}, False),
        ({"bptt": 35}, False),
        ({"minibatch": 1}, False),
    ],
)
def test_only_the_papers_workload_is_compared_with_the_paper(change: dict[str, int], papers: bool) -> None:
    row = tables(report(phone(), workload=replace(PAPERS, **change)))[0][1][0]
    assert ("x of 140 s" in row) == papers


def test_threads_and_cores_are_those_that_ran() -> None:
    """What was asked for stands among the settings: a phone may have given less."""
    ran = Placement(2, True, (1, 0), (0, 1))
    one = phone()
    one = replace(one, epochs=tuple(replace(epoch, placement=ran) for epoch in one.epochs))
    found = dict(tables(report(one, threads=4, cores="big")))
    assert next(iter(found.values()))[0]["threads"] == "2 on 0-1"
    assert [row["remark"] for row in found["Remarks"]] == ["Android allowed the program only cores 0-1 of 0-7"]
    assert tables(report(lost_phone()))[0][1][0]["threads"] is None


def test_steps_energy_and_a_sweep_have_tables() -> None:
    found = dict(tables(report(swept(), lost_phone())))
    (steps,) = found["Steps, in seconds"]
    assert steps["steps"] == 60
    percentiles = [steps[name] for name in ("smallest", "5 %", "25 %", "median", "75 %", "95 %", "99 %", "largest")]
    assert percentiles == sorted(percentiles)  # type: ignore[type-var]
    (energy,) = found["Energy of an epoch, from the battery"]
    assert (energy["mean W"], energy["epochs"], energy["by"]) == (3.1, 3, "current")
    assert [(row["ran"], row["x faster"]) for row in found["Sweep (an epoch each)"]] == [
        ("1 on 4", 1.0),
        ("4 on 4-7", 3.1),
        ("4 on 0-3", 1.41),
        ("8 on 0-7", 2.38),
    ]
    assert "Sweep (an epoch each)" not in dict(tables(report(phone())))


def test_both_output_layers_stand_side_by_side() -> None:
    one = both_layers()
    found = dict(tables(report(one, phone("B", "Pixel 8"), lost_phone())))
    times = next(iter(found.values()))
    assert [row["phone"] for row in times] == [
        "SM-A546B\nR5CT10ABCDE\nfull",
        "SM-A546B\nR5CT10ABCDE\nsampled",
        "Pixel 8\nB\nfull",
        "Pixel 4a\n0A1B2C3D",
    ]
    full = sorted(epoch.seconds for epoch in one.with_output_layer("full").timed)[1]
    (row,) = found["Output layers"]
    assert row == {
        "phone": "SM-A546B\nR5CT10ABCDE",
        "output layer": "full\nsampled",
        "words": "30,000\n3,495",
        "epoch s": f"{full:.3f}\n{full / 2.5:.3f}",
        "x faster": 2.5,
        "peak MB": row["peak MB"],
        "x less": 2.0,
        "rows-f32 MB": "108.512\n54.256",
        "x smaller": 2.0,
    }
    codecs = [(row["codec"], row["output layer"], row["MB"]) for row in found["Update by codec"][:3]]
    assert codecs == [
        ("full-f32", "full", 183.206),
        ("rows-f32", "full", 108.512),
        ("full-f32", "sampled", 91.603),
    ]
    assert [row["phone"] for row in found["Steps, in seconds"]] == [row["phone"] for row in times[:3]]
    alone = dict(tables(report(one.with_output_layer("sampled"))))
    assert "Output layers" not in alone
    assert [row["phone"] for row in next(iter(alone.values()))] == ["SM-A546B\nR5CT10ABCDE\nsampled"]


def test_failures_and_throttling_get_remarks() -> None:
    found = dict(tables(report(phone(hot=True), lost_phone())))
    assert [row["throttled"] for row in found["Phones (medians of timed epochs; the paper's took 140 s)"]] == [
        "yes",
        "failed",
    ]
    assert [str(row["remark"]).replace("\n", " ") for row in found["Remarks"]] == [
        "epoch 3: cores 4-7 capped at 1,400 of 2,400 MHz",
        "epoch 3: thermal status 2 (moderate)",
        "failed: 0A1B2C3D: disconnected while weights.safetensors was pushed; plug it in again and rerun",
    ]


def test_a_codecs_range_of_bytes_over_the_phones_is_shown() -> None:
    other = phone("B", "Pixel 8")
    other = with_codecs(other, [replace(cost, nbytes=cost.nbytes * 2) for cost in other.codecs])
    rows = dict(tables(report(phone(), other)))["Update by codec"]
    assert rows[0]["MB"] == "183.21 to 366.41"


@pytest.mark.parametrize(
    "made",
    [
        report(),
        report(*many(20)),
        report(phone(facts=quiet_facts(), samples=(), codecs=(), pushed=None, epochs=1, steps=1)),
        report(
            both_layers(serial=HOSTILE, model=HOSTILE, step_seconds=777.7, hot=True),
            lost_phone(HOSTILE, HOSTILE),
            workload=SMALL,
            cores="F" * 200,
        ),
    ],
)
def test_tables_stay_below_120_columns(made: PhoneBenchReport, capsys: pytest.CaptureFixture[str]) -> None:
    text = print_tables(capsys, *tables(made))
    assert max(map(len, text.splitlines())) < 120
    assert "\x1b" not in text and "\u202e" not in text
    old = report(*many(5), phone(HOSTILE, HOSTILE, failure=Failure("x" * 500, 21)))
    text = print_tables(capsys, *comparison_tables(compare(old, made), 0.1))
    assert max(map(len, text.splitlines())) < 120


def test_a_comparison_says_who_is_slower() -> None:
    old = report(phone("A", "one"), phone("B", "two"), phone("C", "gone"))
    noisy = phone("B", "two", noise=0.2, seed=3, step_seconds=1.8)
    comparison = compare(old, report(phone("A", "one", step_seconds=2.5, seed=1), noisy))
    (_, rows), (_, remarks) = comparison_tables(comparison, 0.1)
    assert [(row["phone"], row["from"], row["slower"]) for row in rows] == [
        ("one\n(A)", "epochs", "yes"), ("two\n(B)", "epochs", "can't tell"),
    ]  # fmt: skip
    assert rows[0]["memory x"] == pytest.approx(1, abs=0.01)
    assert remarks[0] == {"about": "gone\n(C)", "remark": "only in the old report"}
    assert "slower" not in comparison_tables(comparison)[0][1][0]


def test_a_comparison_of_different_workloads_says_so_in_its_title() -> None:
    (title, (row,)), (_, remarks) = comparison_tables(compare(report(phone()), report(phone(), threads=2)), 0.1)
    assert "NOT COMPARABLE" in title
    assert "slower" not in row
    assert remarks[0] == {"about": "all", "remark": "not comparable: threads was None, is 2"}


def test_printable_text_is_one_line_without_control_characters() -> None:
    assert printable(" a\tb\n\x00\x1b[31m\u202e\ud800 漢") == "a b ��[31m�� 漢"
    assert printable("W" * 21, 20) == "W" * 19 + "…"
    assert printable("W" * 20, 20) == "W" * 20


def test_short_names_are_distinct() -> None:
    phones = [
        facts("SERIAL01", "Pixel 8"),
        facts("SERIAL02", "Pixel 8"),
        facts("X", "moto"),
        quiet_facts("10.0.0.7:5555"),
    ]
    assert short_names(phones) == ["Pixel 8 ·AL01", "Pixel 8 ·AL02", "moto", "10.0.0.7:5555"]
    assert [phone_name(one) for one in phones[2:]] == ["moto (X)", "10.0.0.7:5555"]


def test_an_epoch_that_starts_while_cooling_gets_a_remark() -> None:
    result = phone()
    early = tuple(replace(epoch, cooling="limit", cooled_seconds=180.0) for epoch in result.epochs)
    lines = [line for line in remarks(replace(result, epochs=early)) if "cooling" in line]
    assert lines[0] == "epoch 1: started while still cooling, after waiting 180 s"
    assert len(lines) == len(result.timed)
    assert not [line for line in remarks(result) if "cooling" in line]
    twice = both_layers()
    hot = replace(twice, epochs=tuple(replace(epoch, throttled=("hot",)) for epoch in twice.epochs))
    assert [*remarks(hot)][:3] == ["epoch 1: hot", "epoch 1, sampled: hot", "epoch 2: hot"]
