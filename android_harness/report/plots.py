"""The page's plots: of all phones, and of a phone's sweep. Each function returns None if there is nothing to plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from phonograd.android_harness.report.compare import Comparison, TimeRatio
from phonograd.android_harness.report.figures import GRID, INK, REFERENCE, SERIES, SOFT, new_figure, to_svg
from phonograd.android_harness.report.names import phone_name, printable, short_names
from phonograd.android_harness.report.summary import distribution, is_paper_workload, summarise
from phonograd.android_harness.report.table import MB
from phonograd.android_harness.result import (
    PAPER_EPOCH_SECONDS,
    OutputLayerKind,
    PhoneBenchReport,
    PhoneResult,
    SweepRun,
    with_kind,
)

_ROW_INCHES, _FRAME_INCHES = 0.27, 0.95
_BAR = 0.62


@dataclass(frozen=True)
class Plot:
    """A plot: its title, its content in a sentence, the <svg> element, and a note on how to read it."""

    title: str
    description: str
    svg: str
    note: str = ""


def epoch_plot(report: PhoneBenchReport) -> Plot | None:
    """Plot each phone's timed epochs as points, their median as a bar, and the paper's 140 s for its workload."""
    phones, names = _timed_phones(report)
    if not phones:
        return None
    figure, axes = _rows(names)
    medians = [median(epoch.seconds for epoch in phone.timed) for phone in phones]
    for row, phone in enumerate(phones):
        axes.barh(row, medians[row], _BAR, color=SERIES[0], alpha=0.35, linewidth=0)
        for throttled, marker, colour in ((False, "o", SERIES[0]), (True, "^", REFERENCE)):
            seconds = [epoch.seconds for epoch in phone.timed if bool(epoch.throttled) == throttled]
            axes.plot(seconds, [row] * len(seconds), marker, color=colour, markersize=5, markeredgewidth=0)
    slowest = max(epoch.seconds for phone in phones for epoch in phone.timed)
    axes.set_xlabel("seconds")
    papers = is_paper_workload(report.workload)
    if papers:
        slowest = max(slowest, PAPER_EPOCH_SECONDS)
        axes.axvline(PAPER_EPOCH_SECONDS, color=REFERENCE, linestyle="--", linewidth=1.2)
        side = "left" if slowest > 2 * PAPER_EPOCH_SECONDS else "right"
        label, place = f"the paper's phone: {PAPER_EPOCH_SECONDS:g} s", axes.get_xaxis_transform()
        axes.text(PAPER_EPOCH_SECONDS, 1.01, label, color=REFERENCE, ha=side, va="bottom", transform=place)
    axes.set_xlim(0, slowest * 1.06)
    parts = [f"{name} {seconds:,.4g} s" for name, seconds in zip(names, medians, strict=True)]
    paper = f"; the paper's phone took {PAPER_EPOCH_SECONDS:g} s" if papers else ""
    title = "Time of an epoch"
    description = f"Median seconds by phone: {', '.join(parts)}{paper}."
    note = "Bars are medians, points are epochs; a triangle is an epoch that throttled."
    return Plot(title, description, to_svg(figure, "epochs", title, description), note)


def step_plot(report: PhoneBenchReport) -> Plot | None:
    """Distribution of the steps of timed epochs, by phone: box, whiskers, and the steps outside them."""
    phones, names = _timed_phones(report)
    steps = [[step.seconds for epoch in phone.timed for step in epoch.steps] for phone in phones]
    boxes = [*filter(None, map(distribution, steps))]
    if len(boxes) < len(names) or not boxes:
        return None
    figure, axes = _rows(names)
    for row, (seconds, box) in enumerate(zip(steps, boxes, strict=True)):
        axes.barh(row, box.p75 - box.p25, _BAR, left=box.p25, color=SERIES[0], alpha=0.35, linewidth=0)
        axes.plot([box.p5, box.p95], [row, row], color=SERIES[0], linewidth=1.2)
        axes.plot([box.p50] * 2, [row - _BAR / 2, row + _BAR / 2], color=INK, linewidth=1.6)
        outside = [value for value in seconds if not box.p5 <= value <= box.p95]
        axes.plot(outside, [row] * len(outside), "o", color=SERIES[0], markersize=3, markeredgewidth=0)
    axes.set_xlim(0, max(box.largest for box in boxes) * 1.06)
    axes.set_xlabel("seconds per step")
    title = "Distribution of steps"
    parts = (
        f"{name} {box.p5:.3g} to {box.p95:.3g} s, median {box.p50:.3g} s"
        for name, box in zip(names, boxes, strict=True)
    )
    description = f"Steps from the 5th to the 95th percentile, by phone: {'; '.join(parts)}."
    note = "Boxes: middle half and median; lines: 5 to 95 %; points: other steps. An epoch's first step is slow."
    return Plot(title, description, to_svg(figure, "steps", title, description), note)


def comparison_plot(comparison: Comparison, max_slowdown: float | None = None) -> Plot | None:
    """Plot each phone's ratio of median epochs, new over old, and its interval; lines mark 1 and --max-slowdown."""
    pairs = [(phone, phone.time) for phone in comparison.phones if phone.time]
    if not pairs:
        return None
    figure, axes = _rows([phone.label.replace(" (", "\n(") for phone, _ in pairs], extra_inches=0.16 * len(pairs))
    axes.axvline(1.0, color=SOFT, linewidth=1.2)
    allowed = None if max_slowdown is None or comparison.differences else 1 + max_slowdown
    if allowed is not None:
        axes.axvline(allowed, color=REFERENCE, linestyle="--", linewidth=1.2)
    ends = [1.0, allowed or 1.0]
    for row, (phone, time) in enumerate(pairs):
        low, high = (time.ratio if end is None else end for end in (time.low, time.high))
        surely = allowed is not None and phone.is_slower(allowed - 1)
        colour, marker = (REFERENCE, "^") if surely else (SERIES[0], "o")
        line = "-" if time.basis == "epochs" else ":"
        axes.plot([low, high], [row, row], line, color=colour, linewidth=1.6)
        axes.plot(time.ratio, row, marker, color=colour, markersize=6, markeredgewidth=0)
        ends += [low, high]
    margin = 0.06 * (max(ends) - min(ends)) + 0.01
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_xlabel("epoch time, new / old")
    title = "Epoch time compared with the old report"
    parts = [f"{phone.label} {_interval(time)}" for phone, time in pairs]
    description = f"Median epoch, new over old, by phone: {'; '.join(parts)}."
    note = "Points are ratios of medians, lines their 95 % intervals (dotted: from steps only)."
    if allowed is not None:
        note += f" The dashed line is the --max-slowdown limit, {allowed:g}; a triangle is slower than that."
    return Plot(title, description, to_svg(figure, "compared", title, description), note)


def _interval(time: TimeRatio) -> str:
    return f"{time.ratio:.3f}" + (f" ({time.interval})" if time.interval else "")


def memory_plot(report: PhoneBenchReport) -> Plot | None:
    """Peak resident memory by phone."""
    phones, names = _timed_phones(report)
    peaks = [max(epoch.peak_rss_bytes for epoch in phone.timed) / MB for phone in phones]
    if not phones:
        return None
    figure, axes = _rows(names)
    _label_bars(axes, axes.barh(range(len(names)), peaks, _BAR, color=SERIES[2], linewidth=0), "{:,.0f}")
    axes.set_xlim(0, max(*peaks, 1e-3) * 1.18)
    axes.set_xlabel("peak resident MB (VmHWM)")
    title = "Memory"
    parts = (f"{name} {peak:,.0f} MB" for name, peak in zip(names, peaks, strict=True))
    description = f"Peak resident memory by phone: {', '.join(parts)}."
    return Plot(title, description, to_svg(figure, "memory", title, description))


def phase_plot(report: PhoneBenchReport) -> Plot | None:
    """Median seconds of a step's phases, stacked, by phone."""
    phones, names = _timed_phones(report)
    phases_by_phone = [summarise(phone, report.workload).phases for phone in phones]
    phases = list(dict.fromkeys(phase for phone in phases_by_phone for phase in phone))
    if not phases:
        return None
    figure, axes = _rows(names, extra_inches=0.22 * -(-len(phases) // 3))
    left = [0.0] * len(phones)
    for number, phase in enumerate(phases):
        widths = [phone.get(phase, 0.0) for phone in phases_by_phone]
        colour = SERIES[number % len(SERIES)]
        axes.barh(range(len(names)), widths, _BAR, left=left, color=colour, label=printable(phase, 20), linewidth=0)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_xlabel("seconds per step")
    figure.legend(loc="outside upper left", ncols=3)
    title = "Phases of a step"
    parts = (f"{phase} {seconds:.3g} s" for phase, seconds in phases_by_phone[0].items())
    description = f"Median seconds of a step by phase, stacked, by phone. {names[0]}: {', '.join(parts)}."
    return Plot(title, description, to_svg(figure, "phases", title, description))


def codec_plot(report: PhoneBenchReport) -> Plot | None:
    """Size of the update by codec, on a logarithmic axis; the largest if phones differ."""
    sizes: dict[str, int] = {}
    for epoch in (epoch for phone in report.phones for epoch in phone.epochs):
        for cost in epoch.codecs:
            name = with_kind(printable(cost.codec, 20), epoch.output_layer.kind)
            sizes[name] = max(cost.nbytes, sizes.get(name, 0))
    sizes = {name: nbytes for name, nbytes in sizes.items() if nbytes}
    if not sizes:
        return None
    names = sorted(sizes, key=lambda name: -sizes[name])
    figure, axes = _rows(names)
    values = [sizes[name] / MB for name in names]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    _label_bars(axes, axes.barh(range(len(names)), values, _BAR, color=SERIES[4], linewidth=0), "{:,.3g}")
    axes.set_xlim(min(values) / 3, max(values) * 3)
    axes.set_xlabel("MB per update (logarithmic)")
    title = "Size of the update by codec"
    description = ", ".join(f"{name} {value:,.3g} MB" for name, value in zip(names, values, strict=True)) + "."
    return Plot(title, description, to_svg(figure, "codecs", title, description))


def sweep_plot(phone: PhoneResult, key: str) -> Plot | None:
    """The plot, or None without a sweep; epochs that throttled are triangles."""
    if not phone.sweep:
        return None
    lines: dict[tuple[str, OutputLayerKind], list[SweepRun]] = {}
    for run in phone.sweep:
        lines.setdefault((run.cores, run.epoch.output_layer.kind), []).append(run)
    words = dict.fromkeys(cores for cores, _ in lines)
    colours = {cores: SERIES[(number * 2) % len(SERIES)] for number, cores in enumerate(words)}
    figure = new_figure(2.4)
    axes = figure.subplots()
    for (cores, kind), runs in lines.items():
        style = "o--" if kind == "sampled" else "o-"
        points = sorted((run.epoch.placement.threads, run.epoch.seconds) for run in runs)
        label = with_kind(cores, kind)
        axes.plot(*zip(*points, strict=True), style, color=colours[cores], markersize=5, linewidth=1.2, label=label)
        hot = [(run.epoch.placement.threads, run.epoch.seconds) for run in runs if run.epoch.throttled]
        axes.plot([threads for threads, _ in hot], [seconds for _, seconds in hot], "^", color=REFERENCE)
    threads = sorted({run.epoch.placement.threads for run in phone.sweep})
    axes.set_xticks(threads, list(map(str, threads)))
    axes.set_ylim(0, 1.08 * max(run.epoch.seconds for run in phone.sweep))
    axes.set_xlabel("threads")
    axes.set_ylabel("seconds per epoch")
    axes.grid(color=GRID)
    axes.legend(title="cores")
    best = min(phone.sweep, key=lambda run: run.epoch.seconds)
    title = "Sweep of threads and cores"
    description = (
        f"Seconds per epoch by threads, one line per choice of cores; the fastest is {best.threads} on "
        f"{with_kind(best.cores, best.epoch.output_layer.kind)}, {best.epoch.seconds:.4g} s."
    )
    note = "One epoch each, after the timed ones; a triangle is an epoch that throttled."
    return Plot(title, description, to_svg(figure, key, f"{title} of {phone_name(phone.facts)}", description), note)


def _timed_phones(report: PhoneBenchReport) -> tuple[list[PhoneResult], list[str]]:
    phones: list[PhoneResult] = []
    names: list[str] = []
    for phone, name in zip(report.phones, short_names([phone.facts for phone in report.phones]), strict=True):
        for one in phone.by_output_layer:
            if one.timed and one.output_layer:
                phones.append(one)
                names.append(with_kind(name, one.output_layer.kind))
    return phones, names


def _rows(names: Sequence[str], extra_inches: float = 0.0) -> tuple[Any, Any]:
    figure = new_figure(_FRAME_INCHES + extra_inches + _ROW_INCHES * len(names))
    axes = figure.subplots()
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=GRID)
    return figure, axes


def _label_bars(axes: Any, bars: Any, form: str) -> None:
    axes.bar_label(bars, [form.format(bar.get_width()) for bar in bars], padding=3, fontsize=9, color=SOFT)
