"""A phone bench as tables for a terminal, up to 120 columns wide; MB are 10^6 bytes."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from phonograd.android_harness.report.compare import Comparison, PhoneComparison
from phonograd.android_harness.report.names import MAX_NAME_LENGTH, core_ranges, named_epochs, printable, refused_line
from phonograd.android_harness.report.summary import PhoneSummary, is_paper_workload, summaries
from phonograd.android_harness.result import (
    PAPER_EPOCH_SECONDS,
    CodecCost,
    OutputLayerKind,
    PhoneBenchReport,
    PhoneResult,
    Placement,
)

Row = Mapping[str, object]
Table = tuple[str, Sequence[Row]]
# The first cell of a row, and what the row is of: a phone with one output layer.
Figures = Sequence[tuple[str, PhoneResult, PhoneSummary]]
MB = 1e6
DEFAULT_CODEC = "rows-f32"
_TEXT_COLUMNS = 76
_STEP_COLUMNS = {"steps": "count", "smallest": "smallest", "5 %": "p5", "25 %": "p25", "median": "p50"} | {
    "75 %": "p75",
    "95 %": "p95",
    "99 %": "p99",
    "largest": "largest",
}


def tables(report: PhoneBenchReport) -> tuple[Table, ...]:
    """Titles and rows: times, memory and bytes, updates by codec, and remarks about failures and throttling.

    A row is of one phone and output layer, which is named if one is sampled.
    """
    summarised = [*summaries(report)]
    sampled = any(summary.output_layer and summary.output_layer.kind == "sampled" for _, summary in summarised)
    figures = [
        (_name(phone, summary.output_layer.kind if sampled and summary.output_layer else None), phone, summary)
        for phone, summary in summarised
    ]
    papers = is_paper_workload(report.workload)
    paper = f"; the paper's took {PAPER_EPOCH_SECONDS:g} s" if papers else ""
    named: list[Table] = [
        (f"Phones (medians of timed epochs{paper})", [_time_row(*one, papers) for one in figures]),
        ("Memory and bytes", [_byte_row(*one) for one in figures]),
    ]
    optional: list[Table] = [
        ("Output layers", [*_output_layer_rows(figures)]),
        ("Steps, in seconds", [*_step_rows(figures)]),
        ("Energy of an epoch, from the battery", [*_energy_rows(figures)]),
        ("Sweep (an epoch each)", [*_sweep_rows(report.phones, sampled)]),
        ("Update by codec", [*_codec_rows(figures, sampled)]),
        (
            "Remarks",
            [{"phone": _name(phone), "remark": _wrap(line)} for phone in report.phones for line in remarks(phone)],
        ),
    ]
    return (*named, *(table for table in optional if table[1]))


def comparison_tables(comparison: Comparison, max_slowdown: float | None = None) -> tuple[Table, ...]:
    """Titles and rows: each phone, new and old, and remarks; with `max_slowdown`, the verdict."""
    title = "Comparison with the old report (new / old)"
    if comparison.differences:
        title, max_slowdown = f"{title}: NOT COMPARABLE, see the remarks", None
    rows = [_comparison_row(phone, max_slowdown) for phone in comparison.phones]
    said = [
        *(("all", f"not comparable: {line}") for line in comparison.differences),
        *((name, "only in the old report") for name in comparison.missing),
        *((name, "only in the new report") for name in comparison.added),
        *((phone.name, line) for phone in comparison.phones for line in phone.remarks),
    ]
    lines = [{"about": _two_lines(name), "remark": _wrap(line)} for name, line in said]
    return ((title, rows), ("Remarks on the comparison", lines)) if lines else ((title, rows),)


def remarks(phone: PhoneResult) -> Iterator[str]:
    """Why the phone's result is incomplete, and evidence of heat and throttling in its timed epochs."""
    if phone.failure:
        yield f"failed: {phone.failure.message}"
    allowed = {core for epoch in phone.timed for core in epoch.placement.allowed_cores}
    known = {core.number for core in phone.facts.cores}
    if allowed and known - allowed:
        yield f"Android allowed the program only cores {core_ranges(sorted(allowed))} of {core_ranges(sorted(known))}"
    yield from _power_remarks(phone)
    for name, epoch in named_epochs(phone.timed):
        if epoch.cooling == "limit":
            yield f"epoch {name}: started while still cooling, after waiting {epoch.cooled_seconds:.0f} s"
        yield from (f"epoch {name}: {line}" for line in epoch.throttled)


def _power_remarks(phone: PhoneResult) -> Iterator[str]:
    power, after = phone.power, phone.power_after
    if phone.kept_awake and phone.kept_awake.refused:
        yield refused_line(phone.kept_awake)
    if power is None:
        return
    if power.screen_on and after and after.screen_on is False:
        yield "its screen went off during the work, so Android may have let the CPU sleep: unlock it before"
    if power.screen_on is False:
        yield "its screen was off: some phones run slower then"
    if power.dozing:
        yield "it was in doze: Android defers background work then"
    if power.battery_saver:
        yield "battery saver was on: most phones run slower then"


def describe_placement(placement: Placement) -> str:
    """Number of threads and their cores, like `4 on 4-7`."""
    return f"{placement.threads} on {core_ranges(placement.cores)}"


def _time_row(name: str, phone: PhoneResult, summary: PhoneSummary, papers: bool) -> Row:
    first, last = summary.loss_first, summary.loss_last
    placements = dict.fromkeys(describe_placement(epoch.placement) for epoch in phone.timed or phone.epochs)
    throttled = ("yes" if summary.throttled else "no") if phone.timed else None
    return {
        "phone": name,
        "threads": "\n".join(placements) or None,
        "epoch s": _median(summary.epoch_seconds),
        "step s": _median(summary.step_seconds),
        **({f"x of {PAPER_EPOCH_SECONDS:g} s": _round(summary.paper_ratio)} if papers else {}),
        "tokens/s": _round(summary.tokens_per_s),
        "loss": f"{first:.2f} → {last:.2f}" if first is not None and last is not None else None,
        "max °C": _round(summary.max_temperature_c, 1),
        "throttled": "failed" if phone.failure else throttled,
    }


def _byte_row(name: str, phone: PhoneResult, summary: PhoneSummary) -> Row:
    sizes, pushed = summary.update_bytes, phone.pushed
    smallest = min(sizes, key=lambda codec: sizes[codec], default=None)
    return {
        "phone": name,
        "peak MB": _mb(summary.peak_rss_bytes),
        "pushed MB": _mb(summary.pushed_bytes),
        "files pushed": f"{sum(file.pushed for file in pushed.files)} of {len(pushed.files)}" if pushed else None,
        f"{DEFAULT_CODEC} MB": _mb(sizes.get(DEFAULT_CODEC)),
        "smallest MB": _mb(sizes[smallest]) if smallest else None,
        "by codec": printable(smallest, MAX_NAME_LENGTH) if smallest else None,
    }


def _output_layer_rows(figures: Figures) -> Iterator[Row]:
    for (_, phone, full), (_, _, sampled) in pairwise(figures):
        if sampled.times_faster is None:
            continue
        both = (full, sampled)
        sizes = [one.update_bytes.get(DEFAULT_CODEC) for one in both]
        peaks = [one.peak_rss_bytes for one in both]
        yield {
            "phone": _name(phone),
            "output layer": "full\nsampled",
            "words": _lines(one.output_layer.words if one.output_layer else None for one in both),
            "epoch s": _lines(_median(one.epoch_seconds) for one in both),
            "x faster": _round(sampled.times_faster, 2),
            "peak MB": _lines(map(_mb, peaks)),
            "x less": _ratio(*peaks),
            f"{DEFAULT_CODEC} MB": _lines(map(_mb, sizes)),
            "x smaller": _ratio(*sizes),
        }


def _step_rows(figures: Figures) -> Iterator[Row]:
    for name, _, summary in figures:
        if steps := summary.step_distribution:
            yield {"phone": name, **{title: round(getattr(steps, field), 3) for title, field in _STEP_COLUMNS.items()}}


def _energy_rows(figures: Figures) -> Iterator[Row]:
    for name, phone, _ in figures:
        if energies := [epoch.energy for epoch in phone.timed if epoch.energy]:
            joules = [energy.joules for energy in energies]
            yield {
                "phone": name,
                "J": round(median(joules), 1),
                "from J": round(min(joules), 1),
                "to J": round(max(joules), 1),
                "mean W": round(median(energy.watts for energy in energies), 3),
                "epochs": len(energies),
                "by": ", ".join(dict.fromkeys(energy.basis for energy in energies)),
            }


def _sweep_rows(phones: Sequence[PhoneResult], sampled: bool) -> Iterator[Row]:
    """A row for each epoch of a sweep, with its speed relative to the slowest with its output layer."""
    for phone in phones:
        slowest: dict[OutputLayerKind, float] = {}
        for epoch in (run.epoch for run in phone.sweep):
            kind = epoch.output_layer.kind
            slowest[kind] = max(epoch.seconds, slowest.get(kind, 0.0))
        for run in phone.sweep:
            epoch, kind = run.epoch, run.epoch.output_layer.kind
            yield {
                "phone": _name(phone, kind if sampled else None),
                "cores": run.cores,
                "threads": run.threads,
                "ran": describe_placement(epoch.placement),
                "epoch s": _round(epoch.seconds),
                "x faster": _round(slowest[kind] / epoch.seconds, 2),
                "J": _round(epoch.energy.joules, 1) if epoch.energy else None,
                "throttled": "yes" if epoch.throttled else "no",
            }


def _codec_rows(figures: Figures, sampled: bool) -> Iterator[Row]:
    """Codecs by decreasing size; the range of bytes and the median seconds over the phones."""
    costs: dict[tuple[OutputLayerKind, str], list[CodecCost]] = {}
    for epoch in (epoch for _, phone, _ in figures for epoch in phone.epochs):
        for cost in epoch.codecs:
            costs.setdefault((epoch.output_layer.kind, cost.codec), []).append(cost)
    full = max((cost.nbytes for same in costs.values() for cost in same), default=0)
    for (kind, codec), same in sorted(costs.items(), key=lambda item: -max(cost.nbytes for cost in item[1])):
        sizes = [cost.nbytes for cost in same]
        smallest, largest = min(sizes), max(sizes)
        yield {
            "codec": printable(codec, MAX_NAME_LENGTH),
            **({"output layer": kind} if sampled else {}),
            "MB": _mb(smallest) if smallest == largest else f"{smallest / MB:,.2f} to {largest / MB:,.2f}",
            "times smaller": _round(full / largest) if largest else None,
            "encoding s": _round(median(cost.seconds for cost in same)),
            "phones": len(same),
        }


def _comparison_row(phone: PhoneComparison, max_slowdown: float | None) -> Row:
    time = phone.time
    row = {
        "phone": _two_lines(phone.name) + ("\nsampled" if phone.output_layer == "sampled" else ""),
        "old s": _round(phone.old_seconds),
        "new s": _round(phone.new_seconds),
        "time x": _round(time.ratio) if time else None,
        "95 %": f"{time.low:.3f} to {time.high:.3f}" if time and time.low is not None else None,
        "from": time.basis if time else None,
        "memory x": _round(phone.peak_rss_ratio),
        "update x": _round(phone.update_ratios.get(DEFAULT_CODEC)),
    }
    return row if max_slowdown is None else {**row, "slower": _verdict(phone, max_slowdown)}


def _verdict(phone: PhoneComparison, max_slowdown: float) -> str:
    if phone.time is None:
        return "-"
    if phone.is_slower(max_slowdown):
        return "yes"
    return "can't tell" if phone.may_be_slower(max_slowdown) else "no"


def _name(phone: PhoneResult, kind: OutputLayerKind | None = None) -> str:
    lines = (phone.facts.model, phone.facts.serial, kind)
    return "\n".join(printable(line, MAX_NAME_LENGTH) for line in lines if line)


def _two_lines(phone_name: str) -> str:
    return phone_name.replace(" (", "\n(")


def _lines(values: Iterable[float | None]) -> str:
    return "\n".join(f"{value:,}" if value is not None else "-" for value in values)


def _ratio(first: int | None, second: int | None) -> float | None:
    return round(first / second, 2) if first and second else None


def _median(spread: object) -> float | None:
    return _round(getattr(spread, "median", None))


def _mb(nbytes: int | None) -> float | None:
    return None if nbytes is None else round(nbytes / MB, 3)


def _round(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def _wrap(text: str) -> str:
    return textwrap.fill(printable(text), _TEXT_COLUMNS)
