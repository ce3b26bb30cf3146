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
from phonograd.commands.options import THREADS, Options, opt, refuse
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.commands.shared_options import PACE
from phonograd.console import Console, complain, name_options, output_options
from phonograd.device_runtime.formats.manifest import TrainingConfig, open_artifacts
from phonograd.device_runtime.update.update_file import MAX_COUNT

if TYPE_CHECKING:
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.phones.facts import Phone
    from phonograd.android_harness.result import PhoneBenchReport, PhoneResult

BENCH = Options(
    PhoneBenchSettings,
    epochs="Epochs to time.",
    warm_up="Warm-up epochs before them.",
    threads=opt("CPU threads, at most one a core.  [default: one for each of the chosen cores]", THREADS),
    cores="big (not much slower than the fastest), little, all, or a hexadecimal mask such as f0.",
    pin=opt("Pin each thread to one core.", name="--pin-threads/--no-pin-threads"),
    precision=opt(),
    output_sample=opt(
        "Also train with the softmax over the text's words and N others, drawn at random, in turn with the full one.",
        metavar="N",
    ),
    full_softmax=opt(
        "With --output-sample: time the full softmax too, which takes longer.",
        name="--full-softmax/--no-full-softmax",
    ),
    **PACE,
    cooldown_seconds=opt(
        "Longest wait in seconds before each epoch for the temperature to settle; 0: no wait.", name="--cooldown"
    ),
    codecs=opt("Measure an update with each codec.", name="--codecs/--no-codecs"),
    sweep="Then train an epoch for each number of threads and choice of cores.",
    fixed_performance=opt(
        "Ask Android for clock rates that it can sustain.", name="--fixed-performance/--no-fixed-performance"
    ),
    stay_awake=opt(
        "Keep the screen on, doze and battery saver off, and restore the settings afterwards.",
        name="--stay-awake/--no-stay-awake",
    ),
    min_battery="Skip phones with less battery than this, in percent.",
    sample_seconds=opt("Seconds between samples of clocks and temperatures.", name="--sample-every"),
    heartbeat_timeout="Seconds without contact after which a phone counts as lost and ends its work.",
    keep="Keep files on the phones, except texts, so that the next run pushes less.",
)
TEXT = Options(
    TextSettings,
    user="Train on this text, one message a line.  [default: a synthetic text of 20 KB]",
    rehearsal="General text to draw rehearsal messages from.",
    user_share=f"λ, the user's share of the tokens; with --rehearsal only.  [default: {TrainingConfig().user_share}]",
    seed=opt("Seed of the rehearsal draw and the synthetic text.", click.IntRange(0, MAX_COUNT)),
)


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
@BENCH
@TEXT
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
    out: Path | None,
    html: Path | None,
    trace: Path | None,
    compare: Path | None,
    max_slowdown: str | None,
    fail_unsure: bool,
    **options: Any,
) -> None:
    """Time training epochs on all connected phones that are ready, in parallel.

    Each phone gets missing files, trains --warm-up and --epochs epochs from the same weights, and is restored to its
    earlier state. A failure on one phone does not affect the others and is reported at the end; the exit code is the
    first failure's.
    """
    from phonograd.commands.phone_reports import Outputs

    if options["output_sample"] is None and options["full_softmax"]:
        refuse("expected with --output-sample", "full_softmax")
    settings = BENCH.take(options, text=TEXT.take(options))
    outputs = Outputs.checked(out, html, trace, compare, max_slowdown, settings, fail_unsure)
    measured, signal_number = _measured(console, artifacts, serials, settings)
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
