"""Plot of a phone's sweep: seconds per epoch by number of threads, one line per choice of cores and output layer."""

from phonograd.android_harness.report.figures import GRID, REFERENCE, SERIES, new_figure, to_svg
from phonograd.android_harness.report.names import phone_name
from phonograd.android_harness.report.plots import Plot
from phonograd.android_harness.result import OutputLayerKind, PhoneResult, SweepRun, with_kind


def sweep_plot(phone: PhoneResult, key: str) -> Plot | None:
    """The plot, or None without a sweep; epochs that throttled are triangles."""
    if not phone.sweep:
        return None
    lines: dict[tuple[str, OutputLayerKind], list[SweepRun]] = {}
    for run in phone.sweep:
        lines.setdefault((run.cores, run.epoch.output_layer.kind), []).append(run)
    colours = {
        cores: SERIES[(number * 2) % len(SERIES)]
        for number, cores in enumerate(dict.fromkeys(cores for cores, _ in lines))
    }
    figure = new_figure(2.4)
    axes = figure.subplots()
    for (cores, kind), runs in lines.items():
        style = {"color": colours[cores], "linestyle": "--" if kind == "sampled" else "-"}
        points = sorted((run.epoch.placement.threads, run.epoch.seconds) for run in runs)
        axes.plot(
            *zip(*points, strict=True), marker="o", markersize=5, linewidth=1.2, label=with_kind(cores, kind), **style
        )
        hot = [run for run in runs if run.epoch.throttled]
        axes.plot(
            [run.epoch.placement.threads for run in hot], [run.epoch.seconds for run in hot], "^", color=REFERENCE
        )
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
