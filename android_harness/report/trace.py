"""A phone bench as a trace for ui.perfetto.dev: the JSON trace event format, timestamps and durations in µs.

Each phone is a process with a track of epochs, a track of steps, and counters of clocks, temperatures and power.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phonograd.android_harness.report.names import core_ranges, phone_name, printable
from phonograd.android_harness.result import Epoch, PhoneBenchReport, PhoneResult, Sample, with_kind
from phonograd.device_runtime.base.files import write_bytes

EPOCHS, STEPS = 1, 2  # threads of a phone's process in the trace
Event = dict[str, Any]


def write_trace(path: Path, report: PhoneBenchReport) -> None:
    """Write the trace, whole or not at all. Raises StorageError."""
    write_bytes(path, json.dumps(trace(report), allow_nan=False).encode() + b"\n")


def trace(report: PhoneBenchReport) -> Event:
    """The trace as JSON values. Time zero is when each phone's work began, so that phones can be compared."""
    events = [event for number, phone in enumerate(report.phones, 1) for event in _phone(phone, number)]
    workload = {"model": report.workload.model, "text": report.workload.text, "created": report.created}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": workload}


def _phone(phone: PhoneResult, pid: int) -> Iterator[Event]:
    names = {"process_name": (0, phone_name(phone.facts)), "thread_name": (EPOCHS, "epochs")}
    for kind, (tid, name) in [*names.items(), ("thread_name", (STEPS, "steps"))]:
        yield {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}
    named = [("warm-up" if epoch.warm_up else "epoch", epoch) for epoch in phone.epochs]
    named += [(f"sweep: {run.threads} on {run.cores}", run.epoch) for run in phone.sweep]
    for name, epoch in named:
        yield from _epoch(with_kind(name, epoch.output_layer.kind), epoch, pid)
    for sample in phone.samples:
        yield from _counters(sample, pid)


def _epoch(name: str, epoch: Epoch, pid: int) -> Iterator[Event]:
    first = epoch.steps[0].at_s - epoch.steps[0].seconds if epoch.steps else epoch.started_at_s + epoch.load_seconds
    ended = max([epoch.steps[-1].at_s if epoch.steps else first, first])
    placement = epoch.placement
    arguments = {
        "seconds": epoch.seconds,
        "tokens": epoch.tokens,
        "output words": epoch.output_layer.words,
        "threads": placement.threads,
        "cores": core_ranges(placement.cores),
        "allowed_cores": core_ranges(placement.allowed_cores),
        "loss": f"{epoch.loss_first:.4f} to {epoch.loss_last:.4f}",
        "throttled": "; ".join(epoch.throttled) or "no",
        **({"joules": epoch.energy.joules} if epoch.energy else {}),
    }
    yield _slice("cooling", epoch.started_at_s - epoch.cooled_seconds, epoch.started_at_s, pid, EPOCHS, {})
    yield _slice("loading", epoch.started_at_s, first, pid, EPOCHS, {})
    yield _slice(name, first, ended, pid, EPOCHS, arguments)
    before = first
    for number, step in enumerate(epoch.steps, 1):
        # A step's end is when this machine received the event, so its computed start can lie within the previous step.
        # Slices of a track must not overlap, so the start is moved; the arguments have the exact duration.
        began = min(max(before, step.at_s - step.seconds), step.at_s)
        arguments = {
            "seconds": step.seconds,
            "loss": step.loss,
            **{f"{phase} s": s for phase, s in step.phases.items()},
        }
        yield _slice(f"step {number}", began, step.at_s, pid, STEPS, arguments)
        before = step.at_s


def _slice(name: str, began_s: float, ended_s: float, pid: int, tid: int, arguments: Event) -> Event:
    micros = {"ts": _micros(began_s), "dur": max(0, _micros(ended_s) - _micros(began_s))}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, **micros, "args": arguments}


def _counters(sample: Sample, pid: int) -> Iterator[Event]:
    values: Sequence[tuple[str, float | None]] = [
        *((f"core {core} MHz", khz / 1e3) for core, khz in sorted(sample.frequencies_khz.items())),
        *((f"core {core} cap MHz", khz / 1e3) for core, khz in sorted(sample.caps_khz.items())),
        *((f"{printable(name)} °C", celsius) for name, celsius in sorted(sample.temperatures_c.items())),
        ("battery %", sample.battery_percent),
        ("battery °C", sample.battery_temperature_c),
        ("thermal status", sample.thermal_status),
        ("battery current_now", sample.power.current_ua),
        ("battery V", None if sample.power.voltage_uv is None else sample.power.voltage_uv / 1e6),
        ("charge counter", sample.power.charge_uah),
    ]
    for name, value in values:
        if value is not None:
            yield {"ph": "C", "pid": pid, "name": name, "ts": _micros(sample.at_s), "args": {"value": value}}


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
