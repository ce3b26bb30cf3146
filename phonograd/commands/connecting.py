"""Options of every command that talks to a server or works on its storage; who is asking."""

import os
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from phonograd.api.rounds import connect
from phonograd.commands.options import Command, Decorator, Options, apply_decorators, opt, refuse, taking
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.config.connection import Reach
from phonograd.config.values import Config
from phonograd.console import Console
from phonograd.device_runtime.client.server_client import Connection, Waiting
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
    """Add --server, --token, --ca-cert and --token-over-http; the command receives a Connection as `connection`.

    uploads: add --piece-size, too; downloads: add --models-from, for a command that fetches one.

    Without `required`, it receives None where no --server was given. owner: without --token it acts for the user who
    started the server on this machine, if that is the same user.
    """
    asked = Options(
        connect,
        server=opt("For example http://127.0.0.1:8080", required=required),
        token=opt(_TOKEN["help"], **{name: value for name, value in _TOKEN.items() if name != "help"}),
        ca_cert=opt("PEM file of a certificate authority to trust in place of the system's.", INPUT),
        token_over_http="Send the token unencrypted to another machine.",
        **({"piece_size": PIECE_SIZE} if uploads else {}),
        **({"models_from": MODELS_FROM} if downloads else {}),
    )

    def connection(options: dict[str, Any]) -> Connection | None:
        if options["server"] is None:
            refuse("expected with --server", "token", "ca_cert", "token_over_http", "piece_size", "models_from")
        given = asked.values(options)
        return None if given["server"] is None else connect(**given | {"token": given["token"] or None}, owner=owner)

    return taking("connection", connection, asked)


def token_option(command: Command) -> Command:
    """Add --token to a command whose configuration has the rest of the connection."""
    return click.option("--token", **_TOKEN)(command)


def connection_from(config: Config, token: str | None, owner: bool = False) -> Connection | None:
    """The connection of a command's configuration; None without a server. owner: as in `connection_options`."""
    reach = config.take(Reach)
    if reach.server is None:
        refuse("expected with --server", "token")
        return None
    given = {name: value for name, value in asdict(reach).items() if name != "model_cache"}
    return connect(**given, token=token or None, owner=owner)


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
    connection = connection_options(required=False, owner=True, downloads=downloads)
    place = taking("place", _place, folder, ledger)
    return lambda command: apply_decorators(command, connection, place, *files)


def _place(options: dict[str, Any]) -> Connection | ServerStorage:
    state, ledger, connection = (options.pop(name) for name in ("state", "ledger", "connection"))
    if sum(place is not None for place in (state, ledger, connection)) != 1:
        raise click.UsageError("give one of --state DIR, --ledger URL, or --server URL and --token")
    store = options.pop("store", None)
    if connection is not None and store is not None:
        raise click.UsageError("--store: expected with --state or --ledger; a server knows its own")
    return connection or ServerStorage(state or ledger, store)


def closing_notice(console: Console) -> Waiting:
    """Says why a command waits for a round."""
    return lambda number, seconds: console.say(
        f"round {number} is closing: the server trains its model; waiting {seconds:.0f} s"
    )
