"""`phonograd phone-bench`: epochs timed on every phone that is plugged in."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from phonograd import __version__
from phonograd.android_harness.session.program import SIGNAL_EXIT_BASE
from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.commands.native import building
from phonograd.commands.options import FiniteRange, refuse
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.console import Console, name_options, output_options
from phonograd.device_runtime.engine.backend import PRECISIONS
from phonograd.device_runtime.formats.manifest import TrainingConfig, open_artifacts
from phonograd.device_runtime.update.update_file import MAX_COUNT

if TYPE_CHECKING:
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.phones.facts import Phone
    from phonograd.android_harness.result import PhoneBenchReport, PhoneResult

DEFAULTS = PhoneBenchSettings()


def print_schema(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """The callback of --schema: print the JSON Schema of the result and end, whatever else was given."""
    from phonograd.android_harness.report.document import schema

    if wanted:
        click.echo(json.dumps(schema(), indent=2))
        context.exit()


@click.command("phone-bench")
@click.argument("artifacts", type=INPUT)
@click.option(
    "--serial", "serials", multiple=True, help="Use this phone; may be repeated.  [default: all that are ready]"
)
@click.option("--epochs", type=int, default=DEFAULTS.epochs, help="Epochs to time.")
@click.option("--warm-up", type=int, default=DEFAULTS.warm_up, help="Warm-up epochs before them.")
@click.option(
    "--threads", type=int, help="CPU threads, at most one a core.  [default: one for each of the chosen cores]"
)
@click.option(
    "--cores",
    default=DEFAULTS.cores,
    help="big (not much slower than the fastest), little, all, or a hexadecimal mask such as f0.",
)
@click.option("--pin-threads/--no-pin-threads", "pin", default=DEFAULTS.pin, help="Pin each thread to one core.")
@click.option("--precision", type=click.Choice(PRECISIONS), default=DEFAULTS.precision)
@click.option(
    "--output-sample",
    type=int,
    metavar="N",
    help="Also train with the softmax over the text's words and N others, drawn at random, in turn with the full one.",
)
@click.option(
    "--full-softmax/--no-full-softmax",
    default=DEFAULTS.full_softmax,
    help="With --output-sample: time the full softmax too, which takes longer.",
)
@click.option(
    "--duty", type=FiniteRange(), help="Share of the time that steps take; below 1, rests keep phones cooler."
)
@click.option("--nice", type=int, help="Lower the priority to this nice value, at most 19.")
@click.option(
    "--cooldown",
    "cooldown_seconds",
    type=FiniteRange(),
    default=DEFAULTS.cooldown_seconds,
    help="Longest wait in seconds before each epoch for the temperature to settle; 0: no wait.",
)
@click.option(
    "--user", type=INPUT, help="Train on this text, one message a line.  [default: a synthetic text of 20 KB]"
)
@click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
@click.option(
    "--user-share",
    type=FiniteRange(),
    help=f"λ, the user's share of the tokens; with --rehearsal only.  [default: {TrainingConfig().user_share}]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MAX_COUNT),
    default=TextSettings.seed,
    help="Seed of the rehearsal draw and the synthetic text.",
)
@click.option("--codecs/--no-codecs", default=DEFAULTS.codecs, help="Measure an update with each codec.")
@click.option(
    "--sweep",
    is_flag=True,
    default=DEFAULTS.sweep,
    help="Then train an epoch for each number of threads and choice of cores.",
)
@click.option(
    "--fixed-performance/--no-fixed-performance",
    default=DEFAULTS.fixed_performance,
    help="Ask Android for clock rates that it can sustain.",
)
@click.option(
    "--stay-awake/--no-stay-awake",
    default=DEFAULTS.stay_awake,
    help="Keep the screen on, doze and battery saver off, and restore the settings afterwards.",
)
@click.option(
    "--min-battery", type=int, default=DEFAULTS.min_battery, help="Skip phones with less battery than this, in percent."
)
@click.option(
    "--sample-every",
    "sample_seconds",
    type=FiniteRange(),
    default=DEFAULTS.sample_seconds,
    help="Seconds between samples of clocks and temperatures.",
)
@click.option(
    "--heartbeat-timeout",
    type=FiniteRange(),
    default=DEFAULTS.heartbeat_timeout,
    help="Seconds without contact after which a phone counts as lost and ends its work.",
)
@click.option("--keep", is_flag=True, help="Keep files on the phones, except texts, so that the next run pushes less.")
@click.option("--out", type=OUTPUT, help="Write the result here, as --json prints it.")
@click.option("--html", type=OUTPUT, help="Write a page with plots here.")
@click.option("--trace", type=OUTPUT, help="Write a trace for ui.perfetto.dev here.")
@click.option("--compare", type=INPUT, help="Compare with this earlier result.")
@click.option(
    "--max-slowdown",
    metavar="SHARE",
    help="With --compare: exit with code 24 if slower by more than this, such as 10%.",
)
@click.option(
    "--fail-unsure",
    is_flag=True,
    help="With --max-slowdown: exit with code 24 also if noise, or a missing phone, leaves that open.",
)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_schema,
    help="Print the JSON Schema of the result, and exit.",
)
@output_options
def phone_bench(
    console: Console,
    artifacts: Path,
    serials: tuple[str, ...],
    user: Path | None,
    rehearsal: Path | None,
    user_share: float | None,
    seed: int,
    out: Path | None,
    html: Path | None,
    trace: Path | None,
    compare: Path | None,
    max_slowdown: str | None,
    fail_unsure: bool,
    **chosen: Any,
) -> None:
    """Time training epochs on all connected phones that are ready, in parallel.

    Each phone gets missing files, trains --warm-up and --epochs epochs from the same weights, and is restored to its
    earlier state. A failure on one phone does not affect the others and is reported at the end; the exit code is the
    first failure's.
    """
    from phonograd.commands.phone_reports import Outputs

    if chosen["output_sample"] is None and chosen["full_softmax"]:
        refuse("expected with --output-sample", "full_softmax")
    settings = PhoneBenchSettings(text=TextSettings(user, rehearsal, user_share, seed), **chosen)
    outputs = Outputs.checked(out, html, trace, compare, max_slowdown, settings, fail_unsure)
    measured, signal_number = _measured(console, artifacts, serials, settings)
    report = replace(measured, phones=tuple(map(_with_options, measured.phones)))
    outputs.write(console, report)
    failures = [phone.failure for phone in report.phones if phone.failure]
    for failure in failures:
        click.echo(f"phonograd: {failure.message}", err=True)
    if signal_number:
        click.get_current_context().exit(SIGNAL_EXIT_BASE + signal_number)
    if failures:
        click.get_current_context().exit(failures[0].exit_code)
    outputs.judge()


def _with_options(phone: "PhoneResult") -> "PhoneResult":
    """The result, whose failure names this command's options."""
    if phone.failure is None:
        return phone
    message = name_options(phone.failure.message)
    return replace(phone, failure=replace(phone.failure, message=message))


def _measured(
    console: Console, artifacts: Path, serials: tuple[str, ...], settings: PhoneBenchSettings
) -> tuple["PhoneBenchReport", int]:
    """The report, and the number of the signal that ended it early, or 0."""
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.adb.tool import find_adb
    from phonograd.android_harness.timing.bench import run_phone_bench
    from phonograd.commands.phone_bars import phone_bars
    from phonograd.commands.stopping import stop_signals
    from phonograd.device_runtime.native_build import deliver_phone_binary

    folder = open_artifacts(artifacts)
    adb = Adb(find_adb())
    phones = _ready(console, adb, serials, settings)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as scratch:
        binary = Path(scratch, "phonograd-phone")
        with building(console, "the phone binary") as show:
            deliver_phone_binary(binary, progress=show)
        with stop_signals() as stopped, phone_bars(console, phones) as show_phone:
            report = run_phone_bench(adb, phones, folder, settings, binary, __version__, show_phone, stopped)
            return report, stopped()


def _ready(console: Console, adb: "Adb", serials: tuple[str, ...], settings: PhoneBenchSettings) -> list["Phone"]:
    """The phones to work on; others are told, and an error where they were asked for by name."""
    from phonograd.android_harness.errors import NoPhoneError
    from phonograd.android_harness.phones.discovery import not_ready_line, ready_phones
    from phonograd.android_harness.phones.readiness import Readiness

    ready, others = ready_phones(adb, serials, Readiness(min_battery_percent=settings.min_battery))
    if serials and others:
        raise NoPhoneError("; ".join(map(not_ready_line, others)))
    for phone in others:
        console.say(f"{not_ready_line(phone)}; it is left out")
    return ready
