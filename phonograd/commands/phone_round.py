"""`phonograd phone-round`: one federated round on phones over adb."""

import dataclasses
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.rounds.settings import MaskingSettings, PhoneTraining, RoundSettings
from phonograd.commands.connecting import closing_notice, connection_options, model_cache_option
from phonograd.commands.native import building
from phonograd.commands.options import COUNT, POSITIVE, SHARE, THREADS, FiniteRange, Options, opt, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.phone_round_tables import WORK, tables_of
from phonograd.commands.shared_options import CODEC, MIN_COHORT, PACE, VENDOR
from phonograd.console import Console, name_options, output_options
from phonograd.device_runtime.base.errors import PhonogradError, ServerUnreachableError, StoppedError
from phonograd.device_runtime.client.server_client import Connection
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN

if TYPE_CHECKING:
    from phonograd.android_harness.rounds.result import End, PhoneRound, RoundReport, Stage


class RoundShortError(PhonogradError):
    """Fewer phones than asked for brought their update to the server; `exit_code` is the first drop-out's."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


TRAINING = Options(
    PhoneTraining,
    rehearsal="General text to draw rehearsal messages from.",
    user_share=opt("λ, with --rehearsal.  [default: 0.5]", SHARE),
    steps=opt("Take a single step, with the gradient of the whole text (FedSGD).", metavar="1"),
    learning_rate=opt("Learning rate.  [default: the artifacts']", POSITIVE, name="--lr"),
    threads=opt("CPU threads of each phone.  [default: one a core]", THREADS),
    cores="big, little, all, or a hexadecimal mask such as f0.",
    precision=opt(),
    output_sample=opt(
        "Train the softmax over each text's words and about N others, drawn at random on the phone.", metavar="N"
    ),
    max_unknown=opt(
        f"Largest share of a text's words that the vocabulary may lack, for an update.  [default: {MAX_UNKNOWN}]", SHARE
    ),
    codec=CODEC,
    **PACE,
)
MASKING = Options(MaskingSettings, vendor=VENDOR, min_cohort=MIN_COHORT)
ROUND = Options(
    RoundSettings,
    texts="Folder with SERIAL.txt or NAME.txt, which are pushed to the phones and removed afterwards.",
    text_on_phone="A text on the phone, in place of --texts; it stays there.",
    updates=opt("Folder for updates that the server does not have yet.", OUT_FOLDER, default=Path("phonograd-updates")),
    min_phones=opt("The round fails if fewer phones upload.", COUNT),
    patience_seconds=opt(
        "How long to retry an upload without progress.", FiniteRange(0), name="--patience", metavar="SECONDS"
    ),
    wait_seconds=opt(
        "How long to wait for the round to close; 0: do not wait.", FiniteRange(0), name="--wait", metavar="SECONDS"
    ),
    heartbeat_timeout=opt(
        "Seconds without contact after which a phone counts as lost and ends its work.", POSITIVE, metavar="SECONDS"
    ),
)


@click.command("phone-round")
@click.argument("artifacts", type=INPUT)
@connection_options(required=True, owner=True, uploads=True, models=True)
@click.option("--token-file", type=INPUT, help="File with a line NAME TOKEN for each phone, mode 600.")
@click.option(
    "--certificate-file",
    type=INPUT,
    help="In masked rounds: file with a line NAME CERTIFICATE for each phone, from `phonograd keys sign`.",
)
@click.option(
    "--serial", "serials", multiple=True, help="Use only this phone; may be repeated.  [default: all attached]"
)
@click.option(
    "--name", "names", multiple=True, metavar="SERIAL=NAME", help="A phone's name at the server; may be repeated."
)
@TRAINING
@MASKING
@ROUND
@model_cache_option
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the program and the model on the phones, so that the next round pushes only the new model.",
)
@output_options
def phone_round(
    console: Console,
    artifacts: Path,
    connection: Connection,
    token_file: Path | None,
    certificate_file: Path | None,
    serials: tuple[str, ...],
    names: tuple[str, ...],
    model_cache: Path | None,
    keep: bool,
    **options: Any,
) -> None:
    """Run a federated round on phones: each trains the server's model on its own text, and its update is uploaded.

    Phones that drop out are reported, and the others continue. The exit code is 0 if --min-phones uploaded; 9 if the
    server could not be reached and trained updates wait in --updates; else the first drop-out's code.
    """
    from phonograd import __version__
    from phonograd.android_harness.adb.client import Adb
    from phonograd.android_harness.adb.tool import find_adb
    from phonograd.android_harness.phones.discovery import ready_phones
    from phonograd.android_harness.report.names import refused_line
    from phonograd.android_harness.rounds.federated_round import run_round
    from phonograd.android_harness.rounds.tokens import ServerAccess, read_certificates, read_tokens
    from phonograd.android_harness.session import PhoneSession, SessionSettings
    from phonograd.android_harness.timing.phone_task import PhoneProgress
    from phonograd.commands.phone_bars import phone_bars
    from phonograd.commands.stopping import stop_signals
    from phonograd.device_runtime.formats.manifest import open_artifacts
    from phonograd.device_runtime.native_build import deliver_phone_binary
    from phonograd.device_runtime.native_build.compiler import cache_folder

    if options["texts"] is not None:
        refuse("expected without --texts, which has the phones' texts", "text_on_phone")
    certificates = read_certificates(certificate_file) if certificate_file else None
    masking = MASKING.take(options, certificates=certificates)
    settings = ROUND.take(options, training=TRAINING.take(options), masking=masking)
    aggregation = ServerAccess(connection, read_tokens(token_file) if token_file else None)
    folder = open_artifacts(artifacts)
    adb = Adb(find_adb())
    ready, not_ready = ready_phones(adb, serials)
    at_work = {phone.serial for phone in ready}
    session = SessionSettings(keep_files=keep, timeout_seconds=settings.heartbeat_timeout)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as work:
        program = Path(work) / "phonograd-phone"
        with building(console, "the phone binary") as show:
            deliver_phone_binary(program, progress=show)
        with phone_bars(console, ready) as bars:

            def show_phone(serial: str, stage: "Stage | End", done: int, total: int, note: str) -> None:
                del note
                if serial in at_work:
                    bars(PhoneProgress(serial, WORK.get(stage, stage), done, total, None))

            ended = run_round(
                aggregation,
                folder,
                program,
                model_cache or cache_folder() / "models",
                [*ready, *not_ready],
                _choices(names),
                settings,
                lambda serial: PhoneSession(adb, serial, session),
                show_phone,
                stop_signals,
                closing_notice(console),
            )
    report = dataclasses.replace(ended, phones=tuple(map(_with_options, ended.phones)))
    document = {**report.document(), "phonograd_version": __version__, "adb_version": adb.tool.version}
    console.result(document, *tables_of(report))
    for phone in report.phones:
        if phone.kept_awake is not None and phone.kept_awake.refused:
            console.say(f"{phone.name}: {refused_line(phone.kept_awake)}")
    for phone in report.dropped_out:
        if phone.update is not None and phone.update.kept is not None:
            console.say(f"{phone.name}: trained but not uploaded: {_later(phone, phone.update.kept, connection)}")
    check(report, settings)


def _with_options(phone: "PhoneRound") -> "PhoneRound":
    """The phone's part, whose drop-out names this command's options."""
    if phone.drop_out is None:
        return phone
    message = name_options(phone.drop_out.message)
    return dataclasses.replace(phone, drop_out=dataclasses.replace(phone.drop_out, message=message))


def _choices(names: tuple[str, ...]) -> dict[str, str]:
    """SERIAL=NAME by serial; a serial may hold a `=`, a name can't."""
    choices = {}
    for choice in names:
        serial, _, name = choice.rpartition("=")
        if not serial or serial in choices:
            raise click.UsageError(f"--name {choice}: SERIAL=NAME expected, once for a phone")
        choices[serial] = name
    return choices


def check(report: "RoundReport", settings: RoundSettings) -> None:
    """Raise what the round is to end with: an interrupt, updates that wait for a server, too few phones."""
    uploaded, dropped = report.uploaded, report.dropped_out
    if report.interrupted:
        raise StoppedError(f"interrupted; {len(uploaded)} updates are at the server", report.interrupted)
    waiting = [
        phone
        for phone in dropped
        if phone.drop_out and phone.drop_out.exit_code == ServerUnreachableError.exit_code and phone.update
    ]
    if waiting:
        raise ServerUnreachableError(
            f"{len(waiting)} updates are not at the server: {_why(waiting[0])}; they are kept in {settings.updates}"
        )
    if len(uploaded) < settings.min_phones:
        first = dropped[0].drop_out if dropped else None
        why = f"{dropped[0].name}: {_why(dropped[0])}" if dropped else "attach more phones"
        raise RoundShortError(
            f"{len(uploaded)} of {len(report.phones)} phones uploaded, at least {settings.min_phones} expected: {why}",
            first.exit_code if first else NoPhoneError.exit_code,
        )


def _why(phone: "PhoneRound") -> str:
    return phone.drop_out.message if phone.drop_out else "no reason known"


def _later(phone: "PhoneRound", kept: str, connection: Connection) -> str:
    """The command that sends a kept update; the token is left out, which others would see."""
    line = ["phonograd", "upload", kept, "--server", connection.url, "--phone", phone.name]
    if connection.ca_cert is not None:
        line += ["--ca-cert", str(connection.ca_cert)]
    if connection.token_over_http:
        line.append("--token-over-http")
    return shlex.join(line)
