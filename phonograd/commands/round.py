"""`phonograd round`: one federated round on the phones on the desk."""

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from android_harness.rounds.settings import PHONE_CODECS, TEXT_ON_PHONE, PhoneTraining, RoundSettings
from device_runtime.backends.base import PRECISIONS, Precision
from device_runtime.codecs import DEFAULT_CODEC
from device_runtime.errors import PhonogradError, ServerUnreachableError, StoppedError
from device_runtime.server_client import Connection
from phonograd.connecting import connection_options
from phonograd.console import Console, Rows, output_options

if TYPE_CHECKING:
    from android_harness.rounds.result import PhoneRound, RoundReport

PATH = click.Path(path_type=Path)
MIB = 1 << 20


class RoundShortError(PhonogradError):
    """Fewer phones than asked for brought their update to the server; `exit_code` is the first drop-out's."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


@click.command("round")
@click.argument("artifacts", type=PATH)
@connection_options(required=True)
@click.option("--tokens", "tokens_file", type=PATH, help="File of lines NAME TOKEN, mode 600: each phone has its own.")
@click.option("--serial", "serials", multiple=True, help="Only this phone; may be repeated.  [default: all attached]")
@click.option("--name", "names", multiple=True, metavar="SERIAL=NAME", help="What the server is to call a phone.")
@click.option("--texts", type=PATH, help="Folder of SERIAL.txt or NAME.txt, pushed to the phones, and removed again.")
@click.option("--text-on-phone", default=TEXT_ON_PHONE, show_default=True, help="Without --texts: left alone.")
@click.option("--rehearsal", type=PATH, help="General text to draw rehearsal messages from.")
@click.option("--user-share", type=click.FloatRange(0, 1, min_open=True), help="λ, with --rehearsal.  [default: 0.5]")
@click.option("--codec", type=click.Choice(PHONE_CODECS), default=DEFAULT_CODEC, show_default=True)
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="Learning rate.  [default: the artifacts']")
@click.option("--threads", type=click.IntRange(1), help="CPU threads of each phone.  [default: phonograd-phone's]")
@click.option("--cores", help="big, little, all, or a hexadecimal mask such as f0.  [default: all]")
@click.option("--precision", type=click.Choice(PRECISIONS), help="[default: fp32]")
@click.option(
    "--updates", type=PATH, default=Path("phonograd-updates"), show_default=True,
    help="Folder for updates while the server does not have them.",
)
@click.option(
    "--min-phones", type=click.IntRange(1), default=RoundSettings.min_phones, show_default=True,
    help="Fewer that upload are a failure.",
)
@click.option(
    "--patience", type=click.FloatRange(0), default=RoundSettings.patience_seconds, show_default=True,
    metavar="SECONDS", help="How long an upload that gets no further is tried again.",
)
@click.option(
    "--wait", type=click.FloatRange(0), default=RoundSettings.wait_seconds, show_default=True,
    metavar="SECONDS", help="How long to wait for the round to close; 0: not at all.",
)
@click.option("--keep", is_flag=True, help="Leave program, model and text: the next round pushes the new model alone.")
@output_options
def round_(
    console: Console,
    artifacts: Path,
    connection: Connection,
    tokens_file: Path | None,
    serials: tuple[str, ...],
    names: tuple[str, ...],
    texts: Path | None,
    text_on_phone: str,
    rehearsal: Path | None,
    user_share: float | None,
    codec: str,
    lr: float | None,
    threads: int | None,
    cores: str | None,
    precision: Precision | None,
    updates: Path,
    min_phones: int,
    patience: float,
    wait: float,
    keep: bool,
) -> None:
    """One federated round on real phones: each trains the server's model on its own text; their updates go to it.

    Phones that drop out are named, and the others go on. Exit code 0 if --min-phones uploaded; 9 if the server went
    away and trained updates wait in --updates; else the first drop-out's code.
    """
    from android_harness.adb.client import Adb
    from android_harness.adb.finding import find_adb
    from android_harness.phones.discovery import attached_phones
    from android_harness.rounds.federated_round import Aggregation, run_round
    from android_harness.rounds.tokens import read_tokens
    from android_harness.session import PhoneSession, SessionSettings
    from device_runtime.files import sha256_of_file
    from device_runtime.manifest import open_artifacts
    from device_runtime.native_build import cache_folder, deliver_phone_binary
    from phonograd import __version__
    from phonograd.stopping import stop_signals

    training = PhoneTraining(codec, rehearsal, user_share, lr, threads, cores, precision)
    settings = RoundSettings(updates, training, texts, text_on_phone, min_phones, patience, wait, keep)
    aggregation = Aggregation(connection, read_tokens(tokens_file) if tokens_file else None)
    folder = open_artifacts(artifacts)
    adb = Adb(find_adb())
    with tempfile.TemporaryDirectory(prefix="phonograd-") as work, stop_signals() as stop_signal:
        program = Path(work) / "phonograd-phone"
        with console.progress("building the phone binary, once") as show:
            deliver_phone_binary(program, progress=show)
        with console.progress_of_each() as show_each:
            report = run_round(
                aggregation, folder, program, cache_folder() / "models", phones, _choices(names), settings,
                lambda serial: PhoneSession(adb, serial, SessionSettings(keep=keep)),
                lambda name, stage, done, total, note: show_each(f"{name}: {stage}", done, total, note), stop_signal,
            )  # fmt: skip
    _show(console, report, {"phonograd_version": __version__, "adb_version": adb.tool.version})
    _leave(console, report, settings.min_phones, connection)
