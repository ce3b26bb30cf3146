"""`phonograd phone-round`: one federated round on phones over adb."""

import dataclasses
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.rounds.settings import TEXT_ON_PHONE, PhoneTraining, RoundSettings
from phonograd.commands.connecting import closing_notice, connection_options, model_cache_option
from phonograd.commands.native import building
from phonograd.commands.options import COUNT, POSITIVE, SHARE, FiniteRange, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.shared_options import codec_option
from phonograd.console import Console, Rows, name_options, output_options
from phonograd.device_runtime.base.errors import PhonogradError, ServerUnreachableError, StoppedError
from phonograd.device_runtime.client.server_client import Connection
from phonograd.device_runtime.engine.backend import PRECISIONS, Precision
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN

if TYPE_CHECKING:
    from phonograd.android_harness.rounds.result import End, PhoneRound, RoundReport, Stage

MIB = 1 << 20
# The stages that take their time, and what a bar says during them.
DOING = {"push": "pushing", "train": "training", "pull": "pulling", "upload": "uploading"}


class RoundShortError(PhonogradError):
    """Fewer phones than asked for brought their update to the server; `exit_code` is the first drop-out's."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


@click.command("phone-round")
@click.argument("artifacts", type=INPUT)
@connection_options(required=True, owner=True)
@click.option("--token-file", type=INPUT, help="File with a line NAME TOKEN for each phone, mode 600.")
@click.option(
    "--serial", "serials", multiple=True, help="Use only this phone; may be repeated.  [default: all attached]"
)
@click.option(
    "--name", "names", multiple=True, metavar="SERIAL=NAME", help="A phone's name at the server; may be repeated."
)
@click.option(
    "--texts",
    type=INPUT,
    help="Folder with SERIAL.txt or NAME.txt, which are pushed to the phones and removed afterwards.",
)
@click.option(
    "--text-on-phone", default=TEXT_ON_PHONE, help="A text on the phone, in place of --texts; it stays there."
)
@click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
@click.option("--user-share", type=SHARE, help="λ, with --rehearsal.  [default: 0.5]")
@codec_option
@click.option(
    "--steps", type=int, metavar="1", help="Take a single step, with the gradient of the whole text (FedSGD)."
)
@click.option("--lr", type=POSITIVE, help="Learning rate.  [default: the artifacts']")
@click.option("--threads", type=click.IntRange(1, 256), help="CPU threads of each phone.  [default: one a core]")
@click.option("--cores", default=PhoneTraining.cores, help="big, little, all, or a hexadecimal mask such as f0.")
@click.option("--precision", type=click.Choice(PRECISIONS), default=PhoneTraining.precision)
@click.option(
    "--output-sample",
    type=int,
    metavar="N",
    help="Train the softmax over each text's words and about N others, drawn at random on the phone.",
)
@click.option(
    "--max-unknown",
    type=SHARE,
    help=f"Largest share of a text's words that the vocabulary may lack, for an update.  [default: {MAX_UNKNOWN}]",
)
@click.option(
    "--duty", type=FiniteRange(), help="Share of the time that steps take; below 1, rests keep phones cooler."
)
@click.option("--nice", type=int, help="Lower the priority to this nice value, at most 19.")
@click.option(
    "--updates",
    type=OUT_FOLDER,
    default=Path("phonograd-updates"),
    help="Folder for updates that the server does not have yet.",
)
@click.option(
    "--min-phones", type=COUNT, default=RoundSettings.min_phones, help="The round fails if fewer phones upload."
)
@click.option(
    "--patience",
    type=FiniteRange(0),
    default=RoundSettings.patience_seconds,
    metavar="SECONDS",
    help="How long to retry an upload without progress.",
)
@click.option(
    "--wait",
    type=FiniteRange(0),
    default=RoundSettings.wait_seconds,
    metavar="SECONDS",
    help="How long to wait for the round to close; 0: do not wait.",
)
@click.option(
    "--heartbeat-timeout",
    type=POSITIVE,
    default=RoundSettings.heartbeat_timeout,
    metavar="SECONDS",
    help="Seconds without contact after which a phone counts as lost and ends its work.",
)
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
    serials: tuple[str, ...],
    names: tuple[str, ...],
    texts: Path | None,
    text_on_phone: str,
    rehearsal: Path | None,
    user_share: float | None,
    codec: str,
    steps: int | None,
    lr: float | None,
    threads: int | None,
    cores: str,
    precision: Precision,
    output_sample: int | None,
    max_unknown: float | None,
    duty: float | None,
    nice: int | None,
    updates: Path,
    min_phones: int,
    patience: float,
    wait: float,
    heartbeat_timeout: float,
    model_cache: Path | None,
    keep: bool,
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
    from phonograd.android_harness.rounds.tokens import ServerAccess, read_tokens
    from phonograd.android_harness.session import PhoneSession, SessionSettings
    from phonograd.android_harness.timing.phone_task import PhoneProgress
    from phonograd.commands.phone_bars import phone_bars
    from phonograd.commands.stopping import stop_signals
    from phonograd.device_runtime.formats.manifest import open_artifacts
    from phonograd.device_runtime.native_build import deliver_phone_binary
    from phonograd.device_runtime.native_build.compiler import cache_folder

    if texts is not None:
        refuse("expected without --texts, which has the phones' texts", "text_on_phone")
    training = PhoneTraining(
        codec, rehearsal, user_share, lr, threads, cores, precision, output_sample, duty, nice, steps, max_unknown
    )
    settings = RoundSettings(updates, training, texts, text_on_phone, min_phones, patience, wait, heartbeat_timeout)
    aggregation = ServerAccess(connection, read_tokens(token_file) if token_file else None)
    folder = open_artifacts(artifacts)
    adb = Adb(find_adb())
    ready, not_ready = ready_phones(adb, serials)
    at_work = {phone.serial for phone in ready}
    session = SessionSettings(keep_files=keep, timeout_seconds=heartbeat_timeout)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as work:
        program = Path(work) / "phonograd-phone"
        with building(console, "the phone binary") as show:
            deliver_phone_binary(program, progress=show)
        with phone_bars(console, ready) as bars:

            def show_phone(serial: str, stage: "Stage | End", done: int, total: int, note: str) -> None:
                del note
                if serial in at_work:
                    bars(PhoneProgress(serial, DOING.get(stage, stage), done, total, None))

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
    tables = [("Phones", _phone_rows(report)), (f"Round {report.round}", _round_rows(report))]
    if report.dropped_out:
        tables.insert(1, ("Dropped out", [_drop_out_row(phone) for phone in report.dropped_out]))
    document = {**report.document(), "phonograd_version": __version__, "adb_version": adb.tool.version}
    console.result(document, *tables)
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


def _phone_rows(report: "RoundReport") -> Rows:
    return [
        {
            "phone": phone.name,
            "model": phone.model,
            "pushed MB": None if phone.pushed_bytes is None else phone.pushed_bytes / 1e6,
            "push + train + pull + upload, s": _stages(phone),
            "steps": phone.training.steps if phone.training else None,
            "loss": f"{phone.training.loss_first:.3f} to {phone.training.loss_last:.3f}" if phone.training else None,
            "update bytes": phone.update.nbytes if phone.update else None,
            "all sent": _wire(report, phone.name),
            "update": "out: " + phone.drop_out.stage if phone.drop_out else "accepted",
        }
        for phone in report.phones
    ]


def _stages(phone: "PhoneRound") -> str | None:
    seconds = [phone.seconds.get(stage) for stage in DOING]
    return " + ".join("-" if value is None else f"{value:.1f}" for value in seconds) if phone.seconds else None


def _drop_out_row(phone: "PhoneRound") -> dict[str, object]:
    assert phone.drop_out is not None
    return {
        "phone": phone.name,
        "while": phone.drop_out.stage,
        "code": phone.drop_out.exit_code,
        "because": phone.drop_out.message,
    }


def _round_rows(report: "RoundReport") -> Rows:
    from phonograd.server_agg.report.text import size

    states = {True: "closed", False: "open: it waits for more phones", None: "not asked, or no answer"}
    figures: dict[str, Any] = {
        "round is": states[report.closed],
        "model before": report.model_before[:12],
        "model after": report.model_after[:12] if report.model_after else None,
        "updates accepted": f"{len(report.uploaded)} of these phones, {report.clients_per_round} close a round",
        "uploaded": size(report.update_bytes),
        "a phone": size(report.update_bytes / len(report.uploaded)) if report.uploaded else None,
        "the whole model": size(report.model_bytes),
        "a phone in paper P": size(report.paper_mib_per_phone * MIB),
    }
    if report.ledger is not None:
        figures["whole round, by the server"] = size(report.ledger.round["up_body_bytes"])
        figures["of it useful"] = size(report.ledger.round["useful_bytes"])
    else:
        figures["server's own report"] = report.ledger_missing
    return [{"figure": figure, "value": value} for figure, value in figures.items()]


def _wire(report: "RoundReport", name: str) -> int | None:
    """All bytes the phone sent, as the server counted them at the connection."""
    for entry in report.ledger.phones if report.ledger else ():
        if entry["phone"] == name:
            return int(entry["up_body_bytes"]) + int(entry["up_header_bytes"])
    return None
