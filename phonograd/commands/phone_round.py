"""`phonograd phone-round`: one federated round on phones over adb."""

import dataclasses
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.rounds.result import End, PhoneRound, RoundReport, Stage
from phonograd.android_harness.rounds.settings import MaskingSettings, PhoneTraining, RoundSettings
from phonograd.commands.configured import config_options
from phonograd.commands.connecting import closing_notice, connection_from, model_cache_from, token_option
from phonograd.commands.grouped import GroupedCommand
from phonograd.commands.native import building
from phonograd.commands.paths import OUT_FOLDER
from phonograd.commands.phone_round_tables import WORK, tables_of
from phonograd.config.phone_round import PHONE_ROUND, TEXT_ON_PHONE, TEXTS, PhoneRounding
from phonograd.config.values import Config
from phonograd.console import Console, name_options, output_options
from phonograd.device_runtime.base.errors import PhonogradError, ServerUnreachableError, StoppedError, UsageError
from phonograd.device_runtime.client.server_client import Connection


class RoundShortError(PhonogradError):
    """Fewer phones than asked for brought their update to the server; `exit_code` is the first drop-out's."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


GROUPS = {
    "Phones": ("--serial", "--name", "--keep"),
    "Training": ("--texts", "--codec", "--min-phones"),
    "Server": ("--server", "--token", "--token-file", "--wait"),
    "Settings": ("--config", "--set"),
}


@click.command("phone-round", cls=GroupedCommand, groups=GROUPS)
@config_options(PHONE_ROUND, updates=OUT_FOLDER, model_cache=OUT_FOLDER)
@token_option
@output_options
def phone_round(console: Console, config: Config, token: str | None) -> None:
    """Run a federated round on phones: each trains the server's model on its own text, and its update is uploaded.

    ARTIFACTS is the folder that the server was started with.

    Phones that drop out are reported, and the others continue. The exit code is 0 if --min-phones uploaded; 9 if the
    server could not be reached and trained updates wait in the folder `round.updates`; else the first drop-out's code.
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

    command = config.take(PhoneRounding)
    settings = _settings_from(config, read_certificates(command.certificate_file) if command.certificate_file else None)
    tokens = read_tokens(command.token_file) if command.token_file else None
    folder = open_artifacts(command.artifacts)
    if (connection := connection_from(console, config, token, owner=True)) is None:
        raise click.UsageError("Missing option '--server'.")
    aggregation = ServerAccess(connection, tokens)
    adb = Adb(find_adb())
    ready, not_ready = ready_phones(adb, command.serials)
    at_work = {phone.serial for phone in ready}
    session = SessionSettings(keep_files=command.keep, timeout_seconds=settings.heartbeat_timeout)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as work:
        program = Path(work) / "phonograd-phone"
        with building(console, "the phone binary") as show:
            deliver_phone_binary(program, progress=show)
        with phone_bars(console, ready) as bars:

            def show_phone(serial: str, stage: Stage | End, done: int, total: int, note: str) -> None:
                del note
                if serial in at_work:
                    bars(PhoneProgress(serial, WORK.get(stage, stage), done, total, None))

            ended = run_round(
                aggregation,
                folder,
                program,
                model_cache_from(config) or cache_folder() / "models",
                [*ready, *not_ready],
                _choices(command.names),
                settings,
                lambda serial: PhoneSession(adb, serial, session),
                show_phone,
                stop_signals,
                closing_notice(console),
            )
    report = dataclasses.replace(ended, phones=tuple(map(_with_options, ended.phones)))
    versions = {"phonograd_version": __version__, "adb_version": adb.tool.version}
    console.result({**report.document(), **versions, "config": config.document()}, *tables_of(report))
    for phone in report.phones:
        if phone.kept_awake is not None and phone.kept_awake.refused:
            console.say(f"{phone.name}: {refused_line(phone.kept_awake)}")
    for phone in report.dropped_out:
        if phone.update is not None and phone.update.kept is not None:
            console.say(f"{phone.name}: trained but not uploaded: {_later(phone, phone.update.kept, connection)}")
    check(report, settings)


def _settings_from(config: Config, certificates: Mapping[str, str] | None) -> RoundSettings:
    if config.get(TEXTS) is not None and config.on_command_line(TEXT_ON_PHONE):
        raise UsageError(f"{TEXT_ON_PHONE}: expected without {config.name_of(TEXTS)}, which has the phones' texts")
    masking = config.take(MaskingSettings, certificates=certificates)
    return config.take(RoundSettings, training=config.take(PhoneTraining), masking=masking)


def _with_options(phone: PhoneRound) -> PhoneRound:
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
            raise UsageError(f"`names` {choice}: SERIAL=NAME expected, once for a phone")
        choices[serial] = name
    return choices


def check(report: RoundReport, settings: RoundSettings) -> None:
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


def _why(phone: PhoneRound) -> str:
    return phone.drop_out.message if phone.drop_out else "no reason known"


def _later(phone: PhoneRound, kept: str, connection: Connection) -> str:
    """The command that sends a kept update; the token is left out, which others would see."""
    line = ["phonograd", "upload", kept, "--server", connection.url, "--phone", phone.name]
    if connection.ca_cert is not None:
        line += ["--ca-cert", str(connection.ca_cert)]
    if connection.token_over_http:
        line.append("--token-over-http")
    return shlex.join(line)
