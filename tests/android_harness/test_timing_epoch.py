"""Events of phonograd-phone train, gathered to an epoch."""

from pathlib import Path
from typing import Any

import pytest

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.result import CodecCost, Placement, Step
from phonograd.android_harness.timing.epoch_events import EpochRecorder, ReportEvent, TrainedEpoch
from tests.android_harness.fake_session import report_event, start_event, step_event
from tests.support.phone_command import STEPS, make_place

START = start_event(1.5, (7, 4, 5))


def record_epoch(*events: dict[str, Any]) -> tuple[TrainedEpoch, list[tuple[int, int]]]:
    """What is gathered of events that come a second apart, from second 10 on."""
    seen: list[tuple[int, int]] = []
    gathered = EpochRecorder("PHONE1", lambda done, total: seen.append((done, total)))
    for number, event in enumerate(events):
        gathered.on_event(10.0 + number, event)
    return gathered.trained, seen


def test_an_epoch_from_its_events() -> None:
    codecs = [{"codec": "delta-int8", "nbytes": 42, "seconds": 0.25}]
    trained, seen = record_epoch(
        START,
        step_event(1, 2, 0.75),
        {"event": "something new"},
        step_event(2, 2, 0.5),
        report_event(1.25) | {"codecs": codecs},
    )
    assert (trained.started_at_s, trained.start.load_seconds) == (8.5, 1.5)
    assert trained.start.placement == Placement(3, True, (7, 4, 5), (0, 1, 2, 3, 4, 5, 6, 7))
    assert trained.steps == (
        Step(11.0, 0.75, 5.0, {"lstm": 0.375, "output": 0.375}),
        Step(13.0, 0.5, 2.5, {"lstm": 0.25, "output": 0.25}),
    )
    assert trained.report == ReportEvent(
        seconds=1.25,
        tokens=4000,
        loss_first=5.0,
        loss_last=1.0,
        peak_rss_bytes=100 << 20,
        kernels="neon",
        codecs=(CodecCost("delta-int8", 42, 0.25),),
    )
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("missing", ["start", "step", "report"])
def test_a_process_with_a_missing_event_is_no_epoch(missing: str) -> None:
    events = [START, step_event(1, 1, 1.0), report_event(1.0)]
    with pytest.raises(PhoneRunError, match=f"phone PHONE1: .* succeeded but printed no {missing} event"):
        record_epoch(*(event for event in events if event["event"] != missing))


def test_an_event_of_another_version_is_refused_by_name() -> None:
    old = report_event(1.0)
    del old["peak_rss_bytes"]
    with pytest.raises(PhoneRunError, match="report event: peak_rss_bytes: missing.* the binary has another"):
        record_epoch(START, step_event(1, 1, 1.0), old)
    with pytest.raises(PhoneRunError, match="start event: allowed_cores: missing"):
        record_epoch(
            {name: START[name] for name in START if name != "allowed_cores"}, step_event(1, 1, 1.0), report_event(1.0)
        )
    with pytest.raises(PhoneRunError, match="step event: loss: expected a number, found None"):
        record_epoch(START, step_event(1, 1, 1.0) | {"loss": None})


def test_the_programs_real_output_is_an_epoch(tmp_path: Path) -> None:
    """The real one, built for this machine."""
    trained, seen = record_epoch(*make_place(tmp_path).train("--codec-costs").events)
    assert seen == [(step, STEPS) for step in range(1, STEPS + 1)]
    assert {cost.codec for cost in trained.report.codecs} >= {"full-f32", "rows-f32"}
    assert set(trained.start.placement.cores) <= set(trained.start.placement.allowed_cores)
