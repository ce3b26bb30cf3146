"""A bench as a trace: what Perfetto reads of it, phone by phone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from phonograd.android_harness.report.trace import EPOCHS, STEPS, trace, write_trace
from tests.android_harness.reports import both_layers, many, phone, quiet_facts, report, swept

Event = dict[str, Any]


def slices(events: Sequence[Event], pid: int, tid: int) -> list[Event]:
    return [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) == (pid, tid)]


def test_epochs_steps_and_counters_of_each_phone() -> None:
    one, other = phone(epochs=2, steps=3), swept(serial="B", model="Pixel 8", epochs=1, steps=2)
    events = trace(report(one, other))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["SM-A546B (R5CT10ABCDE)", "Pixel 8 (B)"]
    found = slices(events, 1, EPOCHS)
    assert [event["name"] for event in found] == [
        *("cooling", "loading", "warm-up"),
        *("cooling", "loading", "epoch"),
        *("cooling", "loading", "epoch"),
    ]
    timed = one.timed[0]
    arguments = found[5]["args"]
    assert (arguments["threads"], arguments["cores"], arguments["seconds"]) == (4, "4-7", timed.seconds)
    assert arguments["joules"] == pytest.approx(3.1 * timed.seconds)
    assert found[5]["dur"] == pytest.approx(1e6 * timed.seconds, rel=1e-3)
    steps = slices(events, 1, STEPS)
    assert [event["name"] for event in steps] == ["step 1", "step 2", "step 3"] * 3
    assert steps[3]["args"]["lstm s"] == timed.steps[0].phases["lstm"]
    assert "sweep: 8 on all" in [event["name"] for event in slices(events, 2, EPOCHS)]
    counters = {event["name"] for event in events if event["ph"] == "C" and event["pid"] == 1}
    assert {"core 4 MHz", "core 4 cap MHz", "cpu °C", "battery V", "battery current_now"} <= counters
    hot = [event for event in events if event["ph"] == "C" and event["name"] == "cpu °C" and event["pid"] == 1]
    assert [event["ts"] for event in hot] == [round(1e6 * sample.at_s) for sample in one.samples]


def test_epochs_name_the_sampled_output_layer() -> None:
    found = slices(trace(report(both_layers(epochs=1)))["traceEvents"], 1, EPOCHS)
    names = [event["name"] for event in found if event["args"]]
    assert names == ["warm-up", "warm-up, sampled", "epoch", "epoch, sampled"]
    assert [event["args"]["output words"] for event in found if event["args"]] == [30_000, 3_495] * 2


@pytest.mark.parametrize("made", [report(*many(3)), report(phone(facts=quiet_facts()))])
def test_slices_of_a_track_do_not_overlap(made: Any, tmp_path: Path) -> None:
    write_trace(tmp_path / "bench.trace", made)
    events = json.loads((tmp_path / "bench.trace").read_text("utf-8"))["traceEvents"]
    for pid in range(1, len(made.phones) + 1):
        for tid in (EPOCHS, STEPS):
            ends = [0]
            for event in slices(events, pid, tid):
                assert event["ts"] >= ends[-1], event
                assert event["dur"] >= 0
                ends.append(event["ts"] + event["dur"])
