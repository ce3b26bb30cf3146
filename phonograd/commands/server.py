"""`phonograd serve`, `upload` and `rounds`: the aggregation server from both ends."""

import dataclasses
import sys
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from device_runtime.server_client import Connection
from phonograd.connecting import connection_options
from phonograd.console import Console, output_options
from server_agg.rules import RoundRules
from server_agg.security.settings import Auth, SecuritySettings
from server_agg.settings import ServerSettings
from server_agg.strategies import WEIGHTINGS, StrategySettings

PATH = click.Path(path_type=Path)
DEFAULTS = ServerSettings()
_Settings = TypeVar("_Settings", RoundRules, StrategySettings, SecuritySettings)
SECURITY = DEFAULTS.security


@click.command()
@click.option("--artifacts", type=PATH, required=True, help="The folder phones train from.")
@click.option("--state", type=PATH, required=True, help="Folder of rounds, models and ledger; made if it is not there.")
@click.option("--strategy", type=click.Choice(["fedavg"]), default=DEFAULTS.strategy.strategy, show_default=True)
@click.option(
    "--weighting", type=click.Choice(list(WEIGHTINGS)), default=DEFAULTS.strategy.weighting, show_default=True,
    help="What an update weighs in the average; paper P: equal.",
)  # fmt: skip
@click.option(
    "--clients-per-round", type=click.IntRange(1), default=DEFAULTS.rules.clients_per_round, show_default=True
)
@click.option("--host", default=DEFAULTS.host, show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULTS.port, show_default=True, help="0: a free one.")
@click.option(
    "--auth",
    type=click.Choice(list(get_args(Auth))),
    default=SECURITY.auth,
    show_default=True,
    help="Who must show a token; auto: everyone, unless the server listens on loopback.",
)
@click.option("--tls-cert", type=PATH, help="PEM certificate: serve https.")
@click.option("--tls-key", type=PATH, help="Its PEM key, if it is in a file of its own.")
@click.option(
    "--requests-per-second",
    type=click.FloatRange(0, min_open=True),
    default=SECURITY.requests_per_second,
    show_default=True,
    help="Of each phone; --burst of them at once.",
)
@click.option("--burst", type=click.IntRange(1), default=SECURITY.burst, show_default=True)
@click.option(
    "--concurrent-per-phone",
    type=click.IntRange(1),
    default=SECURITY.concurrent_per_phone,
    show_default=True,
    help="Requests that a phone may have open at once.",
)
@output_options
def serve(console: Console, artifacts: Path, state: Path, **options: Any) -> None:
    """Run the aggregation server until Ctrl-C or SIGTERM.

    With --json, the first line on stdout is {"url": ...} once the server answers. Log lines go to stderr.
    """
    import json
    import logging

    from device_runtime.manifest import open_artifacts
    from server_agg.rounds.keeper import RoundKeeper
    from server_agg.server import serve as run_server

    if options["tls_key"] is not None and options["tls_cert"] is None:
        raise click.UsageError("--tls-key: --tls-cert expected beside it")
    settings = ServerSettings(
        rules=_taken(RoundRules, options),
        strategy=_taken(StrategySettings, options),
        security=_taken(SecuritySettings, options),
        **options,
    )
    level = logging.WARNING if console.quiet else logging.INFO
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s")
    keeper = RoundKeeper(open_artifacts(artifacts), state, settings)

    def ready(url: str) -> None:
        opened = keeper.current
        if console.as_json:
            click.echo(json.dumps({"url": url, **dataclasses.asdict(opened)}))
            sys.stdout.flush()
        console.say(f"listening on {url}: round {opened.round}, model {opened.base_sha256[:12]}; Ctrl-C stops")

    try:
        run_server(keeper, settings, ready)
    finally:
        keeper.close()


def _taken(kind: type[_Settings], options: dict[str, Any]) -> _Settings:
    """Settings of one dataclass out of the options that its fields name, which are used up."""
    return kind(**{field.name: options.pop(field.name) for field in dataclasses.fields(kind) if field.name in options})


@click.command()
@click.argument("update_file", type=PATH)
@connection_options(required=True)
@click.option("--phone", default="phone", show_default=True, help="The phone's name; one update a phone and round.")
@output_options
def upload(console: Console, update_file: Path, connection: Connection, phone: str) -> None:
    """Send UPDATE_FILE to a server; sending it again is safe."""
    from device_runtime.server_client import upload_update
    from device_runtime.update_file import UpdateFile

    with UpdateFile(update_file):  # what is no update is refused before a byte is sent
        pass
    with console.progress("uploading") as show:
        receipt = upload_update(connection, update_file, phone, lambda done, total: show(done, total, "bytes"))
    document = dataclasses.asdict(receipt)
    console.result(document, ("Accepted", [{"figure": key, "value": value} for key, value in document.items()]))


@click.command()
@connection_options(required=False)
@click.option("--state", type=PATH, help="Read a state folder, whether a server runs on it or not.")
@output_options
def rounds(console: Console, connection: Connection | None, state: Path | None) -> None:
    """Report rounds and the bytes each one cost, beside paper P's."""
    from device_runtime.server_client import report as ask_server
    from server_agg.report import read_report, report_rows

    if connection is not None and state is None:
        report = ask_server(connection)
    elif state is not None and connection is None:
        report = read_report(state)
    else:
        raise click.UsageError("give --server URL or --state DIR: one of the two")
    totals = [{"total": key, "value": value} for key, value in report["totals"].items()]
    console.result(report, ("Rounds", report_rows(report)), ("Totals", totals))
