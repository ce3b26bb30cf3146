"""`phonograd phone-bench`: epochs timed on every phone that is plugged in."""

import json
import tempfile
from pathlib import Path

import click
from msgspec.structs import replace

from phonograd import __version__
from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.result import PhoneBenchReport, PhoneResult
from phonograd.android_harness.session.program import SIGNAL_EXIT_BASE
from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.commands.configured import config_options
from phonograd.commands.grouped import GroupedCommand
from phonograd.commands.native import building
from phonograd.commands.paths import OUTPUT
from phonograd.config.phone_bench import PHONE_BENCH, PhoneBenching
from phonograd.config.values import Config
from phonograd.console import Console, complain, name_options, output_options
from phonograd.device_runtime.formats.manifest import open_artifacts


def print_schema(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    """The callback of --schema: print the JSON Schema of the result and end, whatever else was given."""
    from phonograd.android_harness.report.document import schema

    if wanted:
        click.echo(json.dumps(schema(), indent=2))
        context.exit()


GROUPS = {
    "Training": ("--epochs", "--sweep", "--user", "--output-sample"),
    "Phones": ("--serial", "--keep"),
    "Results": ("--out", "--html", "--trace", "--compare", "--max-slowdown"),
    "Settings": ("--config", "--set"),
}


@click.command("phone-bench", cls=GroupedCommand, groups=GROUPS)
@config_options(PHONE_BENCH, out=OUTPUT, html=OUTPUT, trace=OUTPUT)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_schema,
    help="Print the JSON Schema of the result, and exit.",
)
@output_options
def phone_bench(console: Console, config: Config) -> None:
    """Time training epochs of the model in ARTIFACTS on all connected phones that are ready, in parallel.

    Each phone gets missing files, trains some epochs to warm up and --epochs more from the same weights, and is
    restored to its earlier state. A failure on one phone does not affect the others and is reported at the end; the
    exit code is the first failure's.
    """
    from phonograd.commands.phone_reports import Outputs

    command = config.take(PhoneBenching)
    settings = config.take(PhoneBenchSettings, text=config.take(TextSettings))
    outputs = Outputs.from_command(command, settings, config.document())
    measured, signal_number = _measure(console, command.artifacts, command.serials, settings)
    report = replace(measured, phones=tuple(map(_with_options, measured.phones)))
    outputs.write(console, report)
    failures = [phone.failure for phone in report.phones if phone.failure]
    for failure in failures:
        complain(failure.message)
    if signal_number:
        click.get_current_context().exit(SIGNAL_EXIT_BASE + signal_number)
    if failures:
        click.get_current_context().exit(failures[0].exit_code)
    outputs.judge()


def _with_options(phone: PhoneResult) -> PhoneResult:
    if phone.failure is None:
        return phone
    message = name_options(phone.failure.message)
    return replace(phone, failure=replace(phone.failure, message=message))


def _measure(
    console: Console, artifacts: Path, serials: tuple[str, ...], settings: PhoneBenchSettings
) -> tuple[PhoneBenchReport, int]:
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


def _ready(console: Console, adb: Adb, serials: tuple[str, ...], settings: PhoneBenchSettings) -> list[Phone]:
    from phonograd.android_harness.errors import NoPhoneError
    from phonograd.android_harness.phones.discovery import not_ready_line, ready_phones
    from phonograd.android_harness.phones.readiness import Readiness

    ready, others = ready_phones(adb, serials, Readiness(min_battery_percent=settings.min_battery))
    if serials and others:
        raise NoPhoneError("; ".join(map(not_ready_line, others)))
    for phone in others:
        console.say(f"{not_ready_line(phone)}; it is left out")
    return ready
