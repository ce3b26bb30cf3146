"""`phonograd serve`, `upload` and `rounds`: the aggregation server from both ends."""

import dataclasses
import sys
from pathlib import Path

import click

from phonograd.console import Console, output_options
from server_agg.rules import RoundRules
from server_agg.settings import ServerSettings
from server_agg.strategies import WEIGHTINGS, StrategySettings

PATH = click.Path(path_type=Path)
DEFAULTS = ServerSettings()


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
@output_options
def serve(
    console: Console,
    artifacts: Path,
    state: Path,
    host: str,
    port: int,
    strategy: str,
    weighting: str,
    clients_per_round: int,
) -> None:
    """Run the aggregation server until Ctrl-C or SIGTERM.

    With --json, the first line on stdout is {"url": ...} once the server answers. Log lines go to stderr.
    """
    import json
    import logging

    from device_runtime.manifest import open_artifacts
    from server_agg.rounds.keeper import RoundKeeper
    from server_agg.server import serve as run_server

    settings = ServerSettings(
        host=host, port=port, rules=RoundRules(clients_per_round), strategy=StrategySettings(strategy, weighting)
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


@click.command()
@click.argument("update_file", type=PATH)
@click.option("--server", required=True, help="For example http://127.0.0.1:8080")
@click.option("--phone", default="phone", show_default=True, help="The phone's name; one update a phone and round.")
@output_options
def upload(console: Console, update_file: Path, server: str, phone: str) -> None:
    """Send UPDATE_FILE to a server; sending it again is safe."""
    from device_runtime.server_client import upload_update
    from device_runtime.update_file import UpdateFile

    with UpdateFile(update_file):  # what is no update is refused before a byte is sent
        pass
    with console.progress("uploading") as show:
        receipt = upload_update(server, update_file, phone, lambda done, total: show(done, total, "bytes"))
    document = dataclasses.asdict(receipt)
    console.result(document, ("Accepted", [{"figure": key, "value": value} for key, value in document.items()]))


@click.command()
@click.option("--server", help="Ask a running server.")
@click.option("--state", type=PATH, help="Read a state folder, whether a server runs on it or not.")
@output_options
def rounds(console: Console, server: str | None, state: Path | None) -> None:
    """Report rounds and the bytes each one cost, beside paper P's."""
    from device_runtime.server_client import report as ask_server
    from server_agg.report import read_report, report_rows

    if server is not None and state is None:
        report = ask_server(server)
    elif state is not None and server is None:
        report = read_report(state)
    else:
        raise click.UsageError("give --server URL or --state DIR: one of the two")
    totals = [{"total": key, "value": value} for key, value in report["totals"].items()]
    console.result(report, ("Rounds", report_rows(report)), ("Totals", totals))
