"""Options of every command that talks to a server or works on its storage; who is asking."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from phonograd.api.rounds import connect
from phonograd.commands.options import Command, Decorator, FiniteRange, Options, opt, refuse, taking
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.config.connection import Reach
from phonograd.config.values import Config
from phonograd.console import Console
from phonograd.device_runtime.base.settings import fields_of
from phonograd.device_runtime.client.owner_file import with_owner_token
from phonograd.device_runtime.client.server_client import Connection, Waiting
from phonograd.device_runtime.client.waiting import wait_for_server
from phonograd.server_agg.settings.storage import ServerStorage

PIECE_SIZE = opt(
    "Bytes of an update to send at once.  [default: all; where a proxy refuses that (413), ever smaller pieces]",
    int,
    metavar="BYTES",
)
MODELS_FROM = opt(
    "Where else the server may send for a model; may be repeated.  [default: with https, https anywhere]",
    metavar="URL",
)
_TOKEN: dict[str, Any] = {
    "help": "What `phonograd tokens add` showed; other users can see an option's value, but not the variable's.",
    "envvar": "PHONOGRAD_TOKEN",
    "show_envvar": True,
}
MODEL_CACHE = "PHONOGRAD_MODEL_CACHE"


def connection_options(
    required: bool, owner: bool = False, uploads: bool = False, downloads: bool = False
) -> Decorator:
    """Add --server, --token, --ca-cert, --token-over-http and --wait; the command receives `connection`, a Connection.

    uploads: add --piece-size, too; downloads: add --models-from, for a command that fetches one.

    Without `required`, it receives None where no --server was given. owner: without --token it acts for the user who
    started the server on this machine, if that is the same user.
    """
    return taking("connection", *_connecting(required, owner, uploads, downloads))


def _connecting(
    required: bool, owner: bool, uploads: bool, downloads: bool
) -> tuple[Callable[[dict[str, Any]], Connection | None], Decorator, Decorator]:
    """What makes the connection of a command's options, and those options."""
    asked = Options(
        connect,
        server=opt("For example http://127.0.0.1:8080", required=required),
        token=opt(_TOKEN["help"], **{name: value for name, value in _TOKEN.items() if name != "help"}),
        ca_cert=opt("PEM file of a certificate authority to trust in place of the system's.", INPUT),
        token_over_http="Send the token unencrypted to another machine.",
        **({"piece_size": PIECE_SIZE} if uploads else {}),
        **({"models_from": MODELS_FROM} if downloads else {}),
    )
    field = fields_of(Reach)["wait_seconds"]
    seconds = click.option("--wait", type=FiniteRange(0), default=field.default, help=field.about)

    def connection(options: dict[str, Any]) -> Connection | None:
        if options["server"] is None:
            refuse("expected with --server", "token", "ca_cert", "token_over_http", "piece_size", "models_from", "wait")
        given, wait = asked.values(options), options.pop("wait")
        return None if given["server"] is None else _connect(given, wait, owner, options["quiet"])

    return connection, asked, seconds


def _connect(given: dict[str, Any], wait: float, owner: bool, quiet: bool) -> Connection:
    connection, console = connect(**given | {"token": given["token"] or None}), Console(as_json=False, quiet=quiet)
    waiting = f"{connection} refuses connections; waiting up to {wait:g} s, as it may be starting"
    wait_for_server(connection, wait, lambda: console.say(waiting))
    return with_owner_token(connection) if owner else connection


def token_option(command: Command) -> Command:
    """Add --token to a command whose configuration has the rest of the connection."""
    return click.option("--token", **_TOKEN)(command)


def connection_from(console: Console, config: Config, token: str | None, owner: bool = False) -> Connection | None:
    """The connection of a command's configuration; None without a server. owner: as in `connection_options`."""
    reach = config.take(Reach)
    if reach.server is None:
        refuse("expected with --server", "token")
        return None
    given = {name: value for name, value in asdict(reach).items() if name not in ("model_cache", "wait_seconds")}
    return _connect({**given, "token": token}, reach.wait_seconds, owner, console.quiet)


def model_cache_from(config: Config) -> Path | None:
    """The folder of downloaded models, as far as the configuration or the environment says."""
    given: Path | None = config.get("connection.model_cache")
    there = os.environ.get(MODEL_CACHE)
    return Path(OUT_FOLDER.convert(there, None, click.get_current_context())) if there and given is None else given


def place_options(store: bool = False, downloads: bool = False) -> Decorator:
    """Add --state, --ledger and a connection's options; the command receives what was given as `place`: Connection or
    ServerStorage.

    store: add --store, for a command that needs files. downloads: add --models-from.
    """
    folder = click.option("--state", type=INPUT, help="The state folder, on this machine.")
    ledger = click.option("--ledger", help="The ledger of several servers: postgresql://USER@HOST/DATABASE")
    meaning = "The object store that the servers were started with: s3://BUCKET/FOLDER"
    files = (click.option("--store", help=meaning),) if store else ()
    make, *connection = _connecting(False, True, False, downloads)

    def place(options: dict[str, Any]) -> Connection | ServerStorage:
        state, ledger, store = (options.pop(name, None) for name in ("state", "ledger", "store"))
        if sum(place is not None for place in (state, ledger, options["server"])) != 1:
            raise click.UsageError("give one of --state DIR, --ledger URL, or --server URL and --token")
        if options["server"] is not None and store is not None:
            raise click.UsageError("--store: expected with --state or --ledger; a server knows its own")
        return make(options) or ServerStorage(state or ledger, store)

    return taking("place", place, *connection, folder, ledger, *files)


def closing_notice(console: Console) -> Waiting:
    """Says why a command waits for a round."""
    return lambda number, seconds: console.say(
        f"round {number} is closing: the server trains its model; waiting {seconds:.0f} s"
    )
