"""Timeline of one phone's run: steps above, temperatures and clocks below."""

import functools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from phonograd.android_harness.phones.facts import PhoneFacts
from phonograd.android_harness.report.figures import GRID, REFERENCE, SERIES, SOFT, new_figure, to_svg
from phonograd.android_harness.report.names import core_ranges, phone_name, printable
from phonograd.android_harness.report.plots import Plot
from phonograd.android_harness.result import Epoch, PhoneResult, Sample, with_kind

# More points than a screen has pixels only make the page larger.
_MOST_POINTS = 300
_MOST_SENSORS = 4
_STEPS_INCHES, _BELOW_INCHES = 1.9, 1.35


def timeline_plot(phone: PhoneResult, key: str) -> Plot | None:
    """Step times, temperatures, clocks and caps on one time axis; values that were not sampled are left out.

    Kinds of cores that any epoch ran on are marked as used.
    """
    if not any(epoch.steps for epoch in phone.epochs):
        return None
    samples = phone.samples[:: max(1, -(-len(phone.samples) // _MOST_POINTS))]
    draws: list[Callable[[Any], None]] = [functools.partial(_draw_steps, phone=phone)]
    if any(sample.temperatures_c or sample.battery_temperature_c is not None for sample in samples):
        draws.append(functools.partial(_draw_heat, samples=samples))
    if any(sample.frequencies_khz or sample.caps_khz for sample in samples):
        draws.append(functools.partial(_draw_clocks, facts=phone.facts, samples=samples, used=phone.used_cores))
    heights = [_STEPS_INCHES, *[_BELOW_INCHES] * (len(draws) - 1)]
    figure = new_figure(sum(heights) + 0.3)
    rows = figure.subplots(len(draws), sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for axes, draw in zip(rows, draws, strict=True):
        draw(axes)
        axes.grid(color=GRID)
    rows[-1].set_xlabel("seconds since the phone's work began")
    title, description = "Steps, heat and clocks", _describe(phone)
    svg = to_svg(figure, key, f"{title} of {phone_name(phone.facts)}", description)
    return Plot(title, description, svg)


def _draw_steps(axes: Any, phone: PhoneResult) -> None:
    colours = {"warm-up": SOFT, "timed": SERIES[0], "timed, sampled": SERIES[2], "throttled": REFERENCE}
    everything = [(_kind(epoch), epoch) for epoch in phone.epochs]
    everything += [("sweep", run.epoch) for run in phone.sweep]
    for kind, colour in {**colours, "sweep": SERIES[3]}.items():
        epochs = [epoch for name, epoch in everything if name == kind and epoch.steps]
        for number, epoch in enumerate(epochs):
            at, seconds = [step.at_s for step in epoch.steps], [step.seconds for step in epoch.steps]
            label, marker = kind if number == 0 else None, "^-" if kind == "throttled" else "o-"
            axes.plot(at, seconds, marker, color=colour, markersize=2.5, linewidth=0.8, label=label)
    axes.set_ylabel("seconds per step")
    axes.set_ylim(0, 1.08 * max(step.seconds for _, epoch in everything for step in epoch.steps))
    _legend(axes)


def _kind(epoch: Epoch) -> str:
    if epoch.warm_up:
        return "warm-up"
    return "throttled" if epoch.throttled else with_kind("timed", epoch.output_layer.kind)


def _draw_heat(axes: Any, samples: Sequence[Sample]) -> None:
    highest: dict[str, float] = {}
    for sample in samples:
        for name, degrees in sample.temperatures_c.items():
            highest[name] = max(degrees, highest.get(name, degrees))
    hottest = sorted(highest, key=lambda name: -highest[name])[:_MOST_SENSORS]
    lines = {name: [sample.temperatures_c.get(name) for sample in samples] for name in hottest}
    lines.setdefault("battery", [sample.battery_temperature_c for sample in samples])
    for number, (name, degrees_by_sample) in enumerate(lines.items(), 1):
        _line(axes, samples, degrees_by_sample, SERIES[number % len(SERIES)], label=printable(name, 14))
    axes.set_ylabel("°C")
    _legend(axes)


def _draw_clocks(axes: Any, facts: PhoneFacts, samples: Sequence[Sample], used: Sequence[int]) -> None:
    kinds = {f"cores {core_ranges(cluster.cores)}": cluster.cores for cluster in facts.clusters}
    unknown = {"cores": tuple(sorted({core for sample in samples for core in sample.frequencies_khz}))}
    for number, (name, cores) in enumerate((kinds or unknown).items()):
        colour = SERIES[(number * 2) % len(SERIES)]
        mark = ", used" if set(cores) & set(used) else ""
        clocks = [_ghz(fmean, sample.frequencies_khz, cores) for sample in samples]
        caps = [_ghz(min, sample.caps_khz, cores) for sample in samples]
        _line(axes, samples, clocks, colour, label=f"{name}{mark}")
        _line(axes, samples, caps, colour, linestyle="--")
    axes.plot([], [], "--", color=SOFT, linewidth=1.2, label="cap")
    axes.set_ylabel("GHz")
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    _legend(axes)


def _ghz(reduce: Callable[[list[int]], float], khz: Mapping[int, int], cores: Sequence[int]) -> float | None:
    values = [khz[core] for core in cores if core in khz]
    return reduce(values) / 1e6 if values else None


def _line(axes: Any, samples: Sequence[Sample], values: Sequence[float | None], colour: str, **style: Any) -> None:
    points = [(sample.at_s, value) for sample, value in zip(samples, values, strict=True) if value is not None]
    if points:
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, **style)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0}
        axes.legend(ncols=5, handlelength=1.4, columnspacing=1, **place)


def _describe(phone: PhoneResult) -> str:
    steps = [step.seconds for epoch in phone.timed for step in epoch.steps]
    heat = [degrees for sample in phone.samples for degrees in sample.temperatures_c.values()]
    parts = [f"{len(phone.timed)} timed epochs"]
    if steps:
        parts.append(f"steps of {min(steps):.3g} to {max(steps):.3g} s")
    if heat:
        parts.append(f"up to {max(heat):.1f} °C")
    throttled = sum(bool(epoch.throttled) for epoch in phone.timed)
    parts.append(f"{throttled} throttled" if throttled else "none throttled")
    return f"{', '.join(parts)}."
