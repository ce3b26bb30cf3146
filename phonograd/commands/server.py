"""`phonograd serve` and `upload`: the aggregation server from both ends."""

import contextlib
import dataclasses
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phonograd.commands.configured import config_options
from phonograd.commands.connecting import connection_options
from phonograd.commands.native import build_on_first_use
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.commands.round_settings import server_settings_from, warn_of_norms
from phonograd.config.serve import MASKED, SERVE, Serving
from phonograd.config.values import Config
from phonograd.console import Console, figures, name_options, option_names, output_options
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.base.system import use_one_malloc_arena
from phonograd.device_runtime.client.server_client import Connection
from phonograd.pages import to_words
from phonograd.server_agg.log_format import configure

if TYPE_CHECKING:
    from phonograd.server_agg.rounds.responses import OpenRound
    from phonograd.server_agg.server import AggregationServer

log = logging.getLogger(__name__)


@click.command()
@config_options(SERVE, state=OUT_FOLDER)
@output_options
def serve(console: Console, config: Config) -> None:
    """Run the aggregation server until Ctrl-C or SIGTERM.

    With --json, it prints {"url": ..., "admin_url": ...} as the first line on stdout once the server answers.
    admin_url is the dashboard's link, which then is not on stderr; keep it secret while the server runs. Log lines go
    to stderr; as JSON they never have the link.
    """
    command = config.take(Serving)
    level = logging.WARNING if console.quiet else logging.INFO
    configure(sys.stderr, level, command.log_format, option_names())
    if command.log_format == "json":
        console = _LogConsole(console.as_json, console.quiet)
        click.get_current_context().with_resource(_errors_logged())
    if config.get(MASKED):
        build_on_first_use(console)  # it has the rules of masked rounds
    settings = server_settings_from(config)
    warn_of_norms(console, settings.strategy)
    use_one_malloc_arena()

    def ready(server: "AggregationServer", opened: "OpenRound") -> None:
        if console.as_json:
            document = {
                "url": server.url,
                "admin_url": server.admin_url,
                **document_of(opened),
                "config": config.document(),
            }
            click.echo(json.dumps(document))
            sys.stdout.flush()
        console.say(f"listening on {server.url}: {_round_line(opened)}; Ctrl-C stops")
        if not console.as_json and command.log_format == "text":  # logs of programs are kept, and others read them
            console.say(f"dashboard, for you alone: {server.admin_url}")

    from phonograd.api.serving import serve as run_server

    run_server(command.artifacts, command.state, settings, ready)


def _round_line(opened: "OpenRound") -> str:
    masked, closes_at = "masked " if opened.masked else "", opened.closes_at
    until = "no deadline" if closes_at is None else f"until {datetime.fromtimestamp(closes_at, timezone.utc):%F %T} UTC"
    rules = f"{masked}{opened.strategy}, {opened.clients_per_round} phones, {until}"
    return f"round {opened.round}, {rules}, model {opened.base_sha256[:12]}"


class _LogConsole(Console):
    """Says all in the log, whose lines are JSON."""

    def say(self, line: str) -> None:
        text = line.removeprefix("phonograd: ")
        log.log(logging.WARNING if text.startswith("warning: ") else logging.INFO, text.removeprefix("warning: "))


@contextlib.contextmanager
def _errors_logged() -> Iterator[None]:
    try:
        yield
    except click.exceptions.Exit:
        raise
    except KeyboardInterrupt:
        log.info("interrupted")
        raise click.exceptions.Exit(130) from None
    except Exception as error:
        known = isinstance(error, PhonogradError | click.ClickException)
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        log.error(name_options(text), exc_info=not known)
        raise click.exceptions.Exit(getattr(error, "exit_code", 1)) from error


def _checked_update(_context: click.Context, _parameter: click.Parameter, path: Path) -> Path:
    """The callback of an update to send: an invalid one is refused before the server is asked, or waited for."""
    from phonograd.device_runtime.client.resumable_upload import update_metadata

    update_metadata(path)
    return path


@click.command()
@click.argument("update_file", type=INPUT, callback=_checked_update)
@connection_options(required=True, uploads=True)
@click.option(
    "--phone", help="The phone's name; each phone sends one update per round.  [default: the token's, else phone]"
)
@output_options
def upload(console: Console, update_file: Path, connection: Connection, phone: str | None) -> None:
    """Send UPDATE_FILE to a server. Sending it again is safe."""
    from phonograd.api.rounds import upload as upload_update

    with console.progress("uploading", "bytes") as show:
        receipt = upload_update(connection, update_file, phone, lambda done, total: show(done, total, ""))
    document = dataclasses.asdict(receipt)
    console.result(document, ("Accepted", figures(document)))


@click.command()
@click.argument("model", type=OUTPUT)
@connection_options(required=True, downloads=True)
@click.option("--base", type=click.Path(path_type=Path), help="A model that is here, to begin from.  [default: MODEL]")
@click.option("--sha256", help="The model to pull, by its hash.  [default: the open round's]")
@click.option("--phone", help="The phone's name in the server's ledger.  [default: the token's]")
@output_options
def pull(
    console: Console, model: Path, connection: Connection, base: Path | None, sha256: str | None, phone: str | None
) -> None:
    """Bring the file MODEL up to date with a server.

    Fetches links from the model that is here, and applies them, where the server has them and they are smaller than the
    model; else the whole model. Run an interrupted pull again to continue it.
    """
    from phonograd.api.rounds import pull as pull_to

    pulled = pull_to(connection, model, base, sha256, phone)
    document = {
        "model": str(model),
        "sha256": pulled.sha256,
        "changed": pulled.changed,
        "links": pulled.links,
        "received_bytes": pulled.received,
    }
    console.result(document, ("Pulled", [to_words(document)]))
