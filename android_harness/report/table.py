"""A phone bench as tables for a terminal, up to 120 columns wide; MB are 10^6 bytes."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
Figures = Sequence[tuple[PhoneResult, PhoneSummary]]
Named = Callable[[PhoneResult], str]
MB = 1e6
DEFAULT_CODEC = "rows-f32"
OTHER_WORKLOAD = "other\nworkload"
_TEXT_COLUMNS = 76


def tables(report: PhoneBenchReport) -> tuple[Table, ...]:
    """Titles and rows: times, memory and bytes, updates by codec, and remarks about failures and throttling.

    A row is of one phone and output layer, which is named if one is sampled.
    """
    figures = [*summaries(report)]
    sampled = any(phone.output_layer and phone.output_layer.kind == "sampled" for phone, _ in figures)

    def named(phone: PhoneResult) -> str:
        """The cell that says what a row is of."""
        return _name(phone, phone.output_layer.kind if sampled and phone.output_layer else None)

    ratio, papers = f"x of {PAPER_EPOCH_SECONDS:g} s", is_paper_workload(report.workload)
    paper = f"; the paper's took {PAPER_EPOCH_SECONDS:g} s" if papers else ""
    found: list[Table] = [
        (
            f"Phones (medians of timed epochs{paper})",
            [
                {
                    "phone": named(phone),
                    "threads": describe_threads(phone),
                    "epoch s": _median(summary.epoch_seconds),
                    "step s": _median(summary.step_seconds),
                    ratio: _rounded(summary.paper_ratio) if papers else OTHER_WORKLOAD,
                    "tokens/s": _rounded(summary.tokens_per_s),
                    "loss": _loss(summary),
                    "max °C": _rounded(summary.max_temperature_c, 1),
                    "throttled": _state(phone, summary),
                }
                for phone, summary in figures
            ],
        ),
        ("Memory and bytes", [{"phone": named(phone), **_bytes(phone, summary)} for phone, summary in figures]),
    ]
    found += [("Output layers", rows) for rows in [[*_output_layer_rows(figures)]] if rows]
    found += [("Steps, in seconds", rows) for rows in [[*_step_rows(figures, named)]] if rows]
    found += [("Energy of an epoch, from the battery", rows) for rows in [[*_energy_rows(figures, named)]] if rows]
    found += [("Sweep (an epoch each)", rows) for rows in [[*_sweep_rows(report.phones, sampled)]] if rows]
    found += [("Update by codec", rows) for rows in [list(_codec_rows(figures, sampled))] if rows]
    found += [("Remarks", rows) for rows in [_remark_rows(report.phones)] if rows]
    return tuple(found)


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
    lines = [{"about": _two_lines(name), "remark": _wrapped(line)} for name, line in said]
    return ((title, rows), ("Remarks on the comparison", lines)) if lines else ((title, rows),)


def remarks(phone: PhoneResult) -> Iterator[str]:
    """Why the phone's result is incomplete, and evidence of heat and throttling in its timed epochs."""
    if phone.failure:
        yield f"failed: {phone.failure.message}"
    yield from _core_remarks(phone)
    yield from _power_remarks(phone)
    for name, epoch in named_epochs(phone.timed):
        if epoch.cooling == "limit":
            yield f"epoch {name}: started while still cooling, after waiting {epoch.cooled_seconds:.0f} s"
        yield from (f"epoch {name}: {line}" for line in epoch.throttled)


def _core_remarks(phone: PhoneResult) -> Iterator[str]:
    """Cores that Android did not allow the program to use."""
    allowed = {core for epoch in phone.timed for core in epoch.placement.allowed_cores}
    known = {core.number for core in phone.facts.cores}
    if allowed and known - allowed:
        yield f"Android allowed the program only cores {core_ranges(sorted(allowed))} of {core_ranges(sorted(known))}"


def _power_remarks(phone: PhoneResult) -> Iterator[str]:
    """States in which Android may have slowed the phone down."""
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


def describe_threads(phone: PhoneResult) -> str | None:
    """Such as `4 on 4-7`: number of threads and their cores; None before the first epoch."""
    found = dict.fromkeys(describe_placement(epoch.placement) for epoch in phone.timed or phone.epochs)
    return "\n".join(found) or None


def describe_placement(placement: Placement) -> str:
    """Such as `4 on 4-7`: number of threads and their cores."""
    return f"{placement.threads} on {core_ranges(placement.cores)}"


def _bytes(phone: PhoneResult, summary: PhoneSummary) -> Row:
    sizes = summary.update_bytes
    smallest = min(sizes, key=lambda codec: sizes[codec], default=None)
    pushed = phone.pushed
    return {
        "peak MB": _mb(summary.peak_rss_bytes),
        "pushed MB": _mb(summary.pushed_bytes),
        "files pushed": f"{sum(file.pushed for file in pushed.files)} of {len(pushed.files)}" if pushed else None,
        f"{DEFAULT_CODEC} MB": _mb(sizes.get(DEFAULT_CODEC)),
        "smallest MB": _mb(sizes[smallest]) if smallest else None,
        "by codec": printable(smallest, MAX_NAME_LENGTH) if smallest else None,
    }


def _output_layer_rows(figures: Figures) -> Iterator[Row]:
    """The full and the sampled output layer of each phone that timed both, a line each, and their ratios."""
    for (phone, full), (_, sampled) in pairwise(figures):
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
            "x faster": _rounded(sampled.times_faster, 2),
            "peak MB": _lines(map(_mb, peaks)),
            "x less": _ratio(peaks),
            f"{DEFAULT_CODEC} MB": _lines(map(_mb, sizes)),
            "x smaller": _ratio(sizes),
        }


def _lines(values: Iterable[float | None]) -> str:
    """A value a line."""
    return "\n".join("-" if value is None else f"{value:,}" for value in values)


def _ratio(nbytes: Sequence[int | None]) -> float | None:
    """The first size over the second."""
    first, second = nbytes
    return _rounded(first / second, 2) if first and second else None


def _step_rows(figures: Figures, named: Named) -> Iterator[Row]:
    """The distribution of the steps."""
    for phone, summary in figures:
        steps = summary.step_distribution
        if steps:
            yield {
                "phone": named(phone),
                "steps": steps.count,
                "smallest": _rounded(steps.smallest),
                "5 %": _rounded(steps.p5),
                "25 %": _rounded(steps.p25),
                "median": _rounded(steps.p50),
                "75 %": _rounded(steps.p75),
                "95 %": _rounded(steps.p95),
                "99 %": _rounded(steps.p99),
                "largest": _rounded(steps.largest),
            }


def _energy_rows(figures: Figures, named: Named) -> Iterator[Row]:
    """The energy of an epoch, for phones that report it."""
    for phone, summary in figures:
        energies = [epoch.energy for epoch in phone.timed if epoch.energy]
        if summary.joules and energies:
            yield {
                "phone": named(phone),
                "J": _rounded(summary.joules.median, 1),
                "from J": _rounded(min(energy.joules for energy in energies), 1),
                "to J": _rounded(max(energy.joules for energy in energies), 1),
                "mean W": _rounded(median(energy.watts for energy in energies)),
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
                "epoch s": _rounded(epoch.seconds),
                "x faster": _rounded(slowest[kind] / epoch.seconds, 2),
                "J": _rounded(epoch.energy.joules, 1) if epoch.energy else None,
                "throttled": "yes" if epoch.throttled else "no",
            }


def _codec_rows(figures: Figures, sampled: bool) -> Iterator[Row]:
    """Codecs by decreasing size; the range of bytes and the median seconds over the phones."""
    costs: dict[tuple[OutputLayerKind, str], list[CodecCost]] = {}
    for epoch in (epoch for phone, _ in figures for epoch in phone.epochs):
        for cost in epoch.codecs:
            costs.setdefault((epoch.output_layer.kind, cost.codec), []).append(cost)
    full = max((cost.nbytes for found in costs.values() for cost in found), default=0)
    for (kind, codec), found in sorted(costs.items(), key=lambda item: -max(cost.nbytes for cost in item[1])):
        sizes = [cost.nbytes for cost in found]
        smallest, largest = min(sizes), max(sizes)
        yield {
            "codec": printable(codec, MAX_NAME_LENGTH),
            **({"output layer": kind} if sampled else {}),
            "MB": _mb(smallest) if smallest == largest else f"{smallest / MB:,.2f} to {largest / MB:,.2f}",
            "times smaller": _rounded(full / largest) if largest else None,
            "encoding s": _rounded(median(cost.seconds for cost in found)),
            "phones": len(found),
        }


def _remark_rows(phones: Sequence[PhoneResult]) -> list[Row]:
    return [{"phone": _name(phone), "remark": _wrapped(line)} for phone in phones for line in remarks(phone)]


def _comparison_row(phone: PhoneComparison, max_slowdown: float | None) -> Row:
    time = phone.time
    row = {
        "phone": _two_lines(phone.name) + ("\nsampled" if phone.output_layer == "sampled" else ""),
        "old s": _rounded(phone.old_seconds),
        "new s": _rounded(phone.new_seconds),
        "time x": _rounded(time.ratio) if time else None,
        "95 %": f"{time.low:.3f} to {time.high:.3f}" if time and time.low is not None else None,
        "from": time.basis if time else None,
        "memory x": _rounded(phone.peak_rss_ratio),
        "update x": _rounded(phone.update_ratios.get(DEFAULT_CODEC)),
    }
    return row if max_slowdown is None else {**row, "slower": _verdict(phone, max_slowdown)}


def _verdict(phone: PhoneComparison, max_slowdown: float) -> str:
    if phone.time is None:
        return "-"
    if phone.is_slower(max_slowdown):
        return "yes"
    return "can't tell" if phone.may_be_slower(max_slowdown) else "no"


def _state(phone: PhoneResult, summary: PhoneSummary) -> str | None:
    if phone.failure:
        return "failed"
    return ("yes" if summary.throttled else "no") if phone.timed else None


def _name(phone: PhoneResult, kind: OutputLayerKind | None = None) -> str:
    lines = (phone.facts.model, phone.facts.serial, kind)
    return "\n".join(printable(line, MAX_NAME_LENGTH) for line in lines if line)


def _two_lines(name: str) -> str:
    """A phone_name as two lines: model and serial."""
    return name.replace(" (", "\n(")


def _loss(summary: PhoneSummary) -> str | None:
    if summary.loss_first is None or summary.loss_last is None:
        return None
    return f"{summary.loss_first:.2f} → {summary.loss_last:.2f}"


def _median(spread: object) -> float | None:
    return _rounded(getattr(spread, "median", None))


def _mb(nbytes: int | None) -> float | None:
    return None if nbytes is None else round(nbytes / MB, 3)


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def _wrapped(text: str) -> str:
    return textwrap.fill(printable(text), _TEXT_COLUMNS)
