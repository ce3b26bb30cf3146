"""A phone bench as one HTML page: no scripts, no external resources, light and dark, for large and small screens."""

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from phonograd.android_harness.phones.facts import PhoneFacts
from phonograd.android_harness.report.compare import Comparison
from phonograd.android_harness.report.figures import plot_style
from phonograd.android_harness.report.names import core_ranges, describe_power, named_epochs, phone_name, printable
from phonograd.android_harness.report.plots import (
    Plot,
    codec_plot,
    comparison_plot,
    epoch_plot,
    memory_plot,
    phase_plot,
    step_plot,
)
from phonograd.android_harness.report.summary import PhoneSummary, is_paper_workload, summaries
from phonograd.android_harness.report.sweep import sweep_plot
from phonograd.android_harness.report.table import MB, Row, Table, comparison_tables, remarks, tables
from phonograd.android_harness.report.timeline import timeline_plot
from phonograd.android_harness.result import (
    PAPER_EPOCH_SECONDS,
    Epoch,
    OutputLayerKind,
    PhoneBenchReport,
    PhoneResult,
    PowerState,
)
from phonograd.device_runtime.base.files import write_bytes

TEMPLATE = Path(__file__).with_name("page.html")
GB = 1e9


@dataclass(frozen=True)
class PhoneSection:
    """The page's section about one phone; `key` is its anchor."""

    key: str
    name: str
    state: str
    remarks: tuple[str, ...]
    plots: tuple[Plot, ...]
    epochs: Sequence[Row]
    files: Sequence[Row]
    facts: Mapping[str, str]


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
        comparison=_compared(comparison, max_slowdown),
        compared=compared,
        plots=[plot for plot in overall if plot],
        phones=sections,
        run=dict(_run(report)),
        settings=dict(_flat(report.settings, "")),
    )


def _lead(report: PhoneBenchReport) -> Iterator[str]:
    """The result in a few sentences."""
    finished = [phone for phone in report.phones if phone.failure is None]
    plural = "phone" if len(report.phones) == 1 else "phones"
    yield f"{len(finished)} of {len(report.phones)} {plural} finished."
    found = [*summaries(report)]
    full = [*_medians(found, "full")]
    medians = sorted(full or _medians(found, "sampled"))
    if not medians:
        return
    fastest, slowest = medians[0], medians[-1]
    if len(medians) == 1:
        yield f"An epoch took {fastest[0]:,.4g} s."
    else:
        yield f"An epoch took from {fastest[0]:,.4g} s on {fastest[1]} to {slowest[0]:,.4g} s on {slowest[1]}."
    faster = sorted(summary.times_faster for _, summary in found if summary.times_faster)
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


def _medians(found: Iterable[tuple[PhoneResult, PhoneSummary]], kind: OutputLayerKind) -> Iterator[tuple[float, str]]:
    """Median epoch and name of each phone with this output layer."""
    for phone, summary in found:
        if summary.epoch_seconds and summary.output_layer and summary.output_layer.kind == kind:
            yield summary.epoch_seconds.median, phone_name(phone.facts)


def _compared(comparison: Comparison | None, max_slowdown: float | None) -> tuple[Table, ...]:
    return comparison_tables(comparison, max_slowdown) if comparison else ()


def _section(phone: PhoneResult, key: str) -> PhoneSection:
    throttled = any(epoch.throttled for epoch in phone.timed)
    files = phone.pushed.files if phone.pushed else ()
    return PhoneSection(
        key=key,
        name=phone_name(phone.facts),
        state="failed" if phone.failure else "throttled" if throttled else "finished",
        remarks=tuple(remarks(phone)),
        plots=tuple(filter(None, (timeline_plot(phone, f"{key}-timeline"), sweep_plot(phone, f"{key}-sweep")))),
        epochs=[_epoch_row(name, epoch) for name, epoch in named_epochs(phone.epochs)],
        files=[
            {"file": file.name, "bytes": file.nbytes, "pushed": file.pushed, "SHA-256": file.sha256} for file in files
        ],
        facts=dict(_facts(phone)),
    )


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
    facts = phone.facts
    yield from (
        ("Serial", _fact(facts.serial)),
        ("Manufacturer, model", f"{_fact(facts.manufacturer)}, {_fact(facts.model)}"),
        ("System on a chip", _fact(facts.soc)),
        ("Android", f"{_fact(facts.android)} (API level {_fact(facts.sdk)}, {_fact(facts.abi)})"),
        ("Build", _fact(facts.fingerprint)),
        ("Cores", "; ".join(_clusters(facts)) or _fact(len(facts.cores) or None)),
        (
            "Memory",
            f"{_fact(facts.memory_bytes, GB, ' GB')}, {_fact(facts.memory_available_bytes, GB, ' GB')} available",
        ),
        ("Free storage", _fact(facts.free_bytes, GB, " GB")),
        (
            "Battery before",
            f"{_fact(facts.battery.percent)} %, {_fact(facts.battery.temperature_c)} °C, {_power(facts)}",
        ),
        ("Heat before", f"{_fact(facts.temperature_c)} °C, thermal status {_fact(facts.thermal_status)}"),
        ("Fixed-performance mode", "on" if phone.fixed_performance else "off, or not supported"),
    )
    if phone.power and phone.power_before:
        yield "Power", f"{_states(phone.power)}; before: {_states(phone.power_before)}"
    if phone.kept_awake:
        yield "Changed to keep it awake", ", ".join(phone.kept_awake.changed) or "nothing"
    if phone.pushed:
        yield "Pushed", f"{phone.pushed.nbytes / MB:,.2f} MB in {phone.pushed.seconds:,.2f} s"


def _clusters(facts: PhoneFacts) -> Iterator[str]:
    for cluster in facts.clusters:
        yield f"{core_ranges(cluster.cores)}: {_fact(cluster.part)}, up to {_fact(cluster.max_khz, 1e3, ' MHz')}"


def _power(facts: PhoneFacts) -> str:
    return {None: "power unknown", True: "charging", False: "not charging"}[facts.battery.charging]


def _states(power: PowerState) -> str:
    return describe_power(power) or "unknown"


def _fact(value: float | str | None, unit: float = 1.0, name: str = "") -> str:
    """A fact, in multiples of `unit`; a dash if it is unknown."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return printable(value)
    return f"{value / unit:,.4g}{name}" if unit != 1.0 or isinstance(value, float) else str(value)


def _run(report: PhoneBenchReport) -> Iterator[tuple[str, str]]:
    workload = report.workload
    yield from (
        ("Started", report.created),
        ("phonograd", report.phonograd_version),
        ("adb", report.adb_version),
        ("Model", workload.model),
        ("Parameters", f"{workload.parameters:,}"),
        ("Minibatch × BPTT", f"{workload.minibatch} × {workload.bptt}"),
        ("Tokens per epoch", f"{workload.tokens:,}"),
        ("Text", workload.text),
        ("SHA-256 of the manifest", workload.manifest_sha256),
        ("SHA-256 of the program", report.binary_sha256),
    )


def _flat(settings: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Name and value of each setting; nested ones as `outer.inner`."""
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
    """Whether a column has only numbers and empty cells; it is right-aligned then."""
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
