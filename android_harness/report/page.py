"""A phone bench as one HTML page: no scripts, no external resources, light and dark, for large and small screens."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from phonograd.android_harness.report.compare import Comparison
from phonograd.android_harness.report.figures import plot_style
from phonograd.android_harness.report.names import core_ranges, describe_power, named_epochs, phone_name, printable
from phonograd.android_harness.report.plots import (
    codec_plot,
    comparison_plot,
    epoch_plot,
    memory_plot,
    phase_plot,
    step_plot,
    sweep_plot,
)
from phonograd.android_harness.report.summary import PhoneSummary, is_paper_workload, summaries
from phonograd.android_harness.report.table import MB, Row, comparison_tables, remarks, tables
from phonograd.android_harness.report.timeline import timeline_plot
from phonograd.android_harness.result import (
    PAPER_EPOCH_SECONDS,
    Epoch,
    OutputLayerKind,
    PhoneBenchReport,
    PhoneResult,
)
from phonograd.device_runtime.base.files import write_bytes

TEMPLATE = Path(__file__).with_name("page.html")
GB = 1e9


def write_page(
    path: Path, report: PhoneBenchReport, comparison: Comparison | None = None, max_slowdown: float | None = None
) -> None:
    """Write the page. Raises MissingExtraError without matplotlib, StorageError."""
    write_bytes(path, page(report, comparison, max_slowdown).encode("utf-8", "replace"))


def page(report: PhoneBenchReport, comparison: Comparison | None = None, max_slowdown: float | None = None) -> str:
    """The page's HTML, the same for the same report. Raises MissingExtraError without matplotlib."""
    with plot_style():
        overall = [draw(report) for draw in (epoch_plot, step_plot, memory_plot, phase_plot, codec_plot)]
        compared = comparison_plot(comparison, max_slowdown) if comparison else None
        sections = [_section(phone, f"phone-{number}") for number, phone in enumerate(report.phones, 1)]
    return _template().render(
        lead=list(_lead(report)),
        tables=[table for table in tables(report) if table[0] != "Remarks"],
        comparison=comparison_tables(comparison, max_slowdown) if comparison else (),
        compared=compared,
        plots=[plot for plot in overall if plot],
        phones=sections,
        run=_run(report),
        settings=dict(_flat(report.settings, "")),
    )


def _lead(report: PhoneBenchReport) -> Iterator[str]:
    finished = [phone for phone in report.phones if phone.failure is None]
    plural = "phone" if len(report.phones) == 1 else "phones"
    yield f"{len(finished)} of {len(report.phones)} {plural} finished."
    summarised = [*summaries(report)]
    full = [*_medians(summarised, "full")]
    medians = sorted(full or _medians(summarised, "sampled"))
    if not medians:
        return
    fastest, slowest = medians[0], medians[-1]
    if len(medians) == 1:
        yield f"An epoch took {fastest[0]:,.4g} s."
    else:
        yield f"An epoch took from {fastest[0]:,.4g} s on {fastest[1]} to {slowest[0]:,.4g} s on {slowest[1]}."
    faster = sorted(summary.times_faster for _, summary in summarised if summary.times_faster)
    if faster:
        span = f"{faster[0]:.2f}" if len(faster) == 1 else f"from {faster[0]:.2f} to {faster[-1]:.2f}"
        yield f"With the sampled output layer it was {span} times faster."
    if is_paper_workload(report.workload):
        yield f"The paper's phone took {PAPER_EPOCH_SECONDS:g} s for the same amount of work."
    else:
        yield f"The workload is not the paper's, so its {PAPER_EPOCH_SECONDS:g} s cannot be compared."
    throttled = sum(any(epoch.throttled for epoch in phone.timed) for phone in report.phones)
    if throttled:
        yield f"{throttled} of the phones throttled."


def _medians(
    summarised: Iterable[tuple[PhoneResult, PhoneSummary]], kind: OutputLayerKind
) -> Iterator[tuple[float, str]]:
    for phone, summary in summarised:
        if summary.epoch_seconds and summary.output_layer and summary.output_layer.kind == kind:
            yield summary.epoch_seconds.median, phone_name(phone.facts)


def _section(phone: PhoneResult, key: str) -> dict[str, object]:
    throttled = any(epoch.throttled for epoch in phone.timed)
    files = phone.pushed.files if phone.pushed else ()
    return {
        "key": key,
        "name": phone_name(phone.facts),
        "state": "failed" if phone.failure else "throttled" if throttled else "finished",
        "remarks": [*remarks(phone)],
        "plots": [*filter(None, (timeline_plot(phone, f"{key}-timeline"), sweep_plot(phone, f"{key}-sweep")))],
        "epochs": [_epoch_row(name, epoch) for name, epoch in named_epochs(phone.epochs)],
        "files": [
            {"file": file.name, "bytes": file.nbytes, "pushed": file.pushed, "SHA-256": file.sha256} for file in files
        ],
        "facts": dict(_facts(phone)),
    }


def _epoch_row(name: str, epoch: Epoch) -> Row:
    return {
        "epoch": name,
        "seconds": round(epoch.seconds, 3),
        "load s": round(epoch.load_seconds, 3),
        "wall s": round(epoch.wall_seconds, 3),
        "cooled s": round(epoch.cooled_seconds, 1),
        "cooling": epoch.cooling,
        "steps": len(epoch.steps),
        "tokens": epoch.tokens,
        "output words": epoch.output_layer.words,
        "loss": f"{epoch.loss_first:.3f} → {epoch.loss_last:.3f}",
        "peak MB": round(epoch.peak_rss_bytes / MB, 1),
        "kernels": epoch.kernels,
        "threads": epoch.placement.threads,
        "cores": core_ranges(epoch.placement.cores),
        "pinned": epoch.placement.pinned,
        "allowed": core_ranges(epoch.placement.allowed_cores),
        "J": round(epoch.energy.joules, 1) if epoch.energy else None,
        "throttled": bool(epoch.throttled),
    }


def _facts(phone: PhoneResult) -> Iterator[tuple[str, str]]:
    facts, battery = phone.facts, phone.facts.battery
    memory, available = (_fact(nbytes, GB, " GB") for nbytes in (facts.memory_bytes, facts.memory_available_bytes))
    power = {None: "power unknown", True: "charging", False: "not charging"}[battery.charging]
    clusters = (
        f"{core_ranges(cluster.cores)}: {_fact(cluster.part)}, up to {_fact(cluster.max_khz, 1e3, ' MHz')}"
        for cluster in facts.clusters
    )
    yield "Serial", _fact(facts.serial)
    yield "Manufacturer, model", f"{_fact(facts.manufacturer)}, {_fact(facts.model)}"
    yield "System on a chip", _fact(facts.soc)
    yield "Android", f"{_fact(facts.android)} (API level {_fact(facts.sdk)}, {_fact(facts.abi)})"
    yield "Build", _fact(facts.fingerprint)
    yield "Cores", "; ".join(clusters) or _fact(len(facts.cores) or None)
    yield "Memory", f"{memory}, {available} available"
    yield "Free storage", _fact(facts.free_bytes, GB, " GB")
    yield "Battery before", f"{_fact(battery.percent)} %, {_fact(battery.temperature_c)} °C, {power}"
    yield "Heat before", f"{_fact(facts.temperature_c)} °C, thermal status {_fact(facts.thermal_status)}"
    yield "Fixed-performance mode", "on" if phone.fixed_performance else "off, or not supported"
    if phone.power and phone.power_before:
        during, before = (describe_power(state) or "unknown" for state in (phone.power, phone.power_before))
        yield "Power", f"{during}; before: {before}"
    if phone.kept_awake:
        yield "Changed to keep it awake", ", ".join(phone.kept_awake.changed) or "nothing"
    if phone.pushed:
        yield "Pushed", f"{phone.pushed.nbytes / MB:,.2f} MB in {phone.pushed.seconds:,.2f} s"


def _fact(value: float | str | None, unit: float = 1.0, name: str = "") -> str:
    """A fact, in multiples of `unit`; a dash if it is unknown."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return printable(value)
    return f"{value / unit:,.4g}{name}" if unit != 1.0 or isinstance(value, float) else str(value)


def _run(report: PhoneBenchReport) -> dict[str, str]:
    workload = report.workload
    return {
        "Started": report.created,
        "phonograd": report.phonograd_version,
        "adb": report.adb_version,
        "Model": workload.model,
        "Parameters": f"{workload.parameters:,}",
        "Minibatch × BPTT": f"{workload.minibatch} × {workload.bptt}",
        "Tokens per epoch": f"{workload.tokens:,}",
        "Text": workload.text,
        "SHA-256 of the manifest": workload.manifest_sha256,
        "SHA-256 of the program": report.binary_sha256,
    }


def _flat(settings: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value if isinstance(value, str) else json.dumps(value, default=str)


def _cell(value: object) -> str:
    """A table cell: numbers with thousands separators, to four digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else "\n".join(map(printable, str(value).split("\n")))


def _is_numeric(column: str, rows: Sequence[Row]) -> bool:
    values = [row[column] for row in rows]
    return all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values)


def _finalize(value: Any) -> Any:
    """Convert the value of every template expression; lone surrogates and control characters are replaced."""
    return value if isinstance(value, markupsafe.Markup) else _cell(value)


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["numeric"] = _is_numeric
    return environment.get_template(TEMPLATE.name)
