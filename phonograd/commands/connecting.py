"""Options of every command that talks to a server or works on its storage; who is asking."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from phonograd.api.rounds import connect
from phonograd.commands.options import refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.console import Console
from phonograd.device_runtime.client.server_client import Connection, Waiting
from phonograd.server_agg.settings.storage import ServerStorage


def connection_options(required: bool, owner: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --server, --token, --ca-cert and --token-over-http; the command receives a Connection as `connection`.

    Without `required`, it receives None where no --server was given. owner: without --token it acts for the user who
    started the server on this machine, if that is the same user.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapped(
            *args: Any,
            server: str | None,
            token: str | None,
            ca_cert: Path | None,
            token_over_http: bool,
            **options: Any,
        ) -> None:
            if server is None:
                refuse("expected with --server", "token", "ca_cert", "token_over_http", "model_cache")
            connection = (
                None
                if server is None
                else connect(server, token or None, ca_cert=ca_cert, token_over_http=token_over_http, owner=owner)
            )
            command(*args, connection=connection, **options)

        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        wrapped.__dict__.update(command.__dict__)  # click keeps the parameters declared so far there
        for option in reversed(_options(required)):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def model_cache_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --model-cache; the command receives `model_cache`, None for phonograd's own folder."""
    return click.option(
        "--model-cache",
        type=OUT_FOLDER,
        envvar="PHONOGRAD_MODEL_CACHE",
        show_envvar=True,
        help="Folder of downloaded models, for each server and phone.  [default: ~/.cache/phonograd/models]",
    )(command)


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --state, --ledger and a connection's options; the command receives what was given as `place`: Connection or
    ServerStorage.
    """

    def wrapped(
        *args: Any, state: Path | None, ledger: str | None, connection: Connection | None, **options: Any
    ) -> None:
        places = [place for place in (state, ledger, connection) if place is not None]
        if len(places) != 1:
            raise click.UsageError("give one of --state DIR, --ledger URL, or --server URL and --token")
        store = options.pop("store", None)
        if connection is not None and store is not None:
            raise click.UsageError("--store: expected with --state or --ledger; a server knows its own")
        command(*args, place=connection or ServerStorage(state or str(ledger), store), **options)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__dict__.update(command.__dict__)
    for name, kind, meaning in (
        ("--ledger", str, "The ledger of several servers: postgresql://USER@HOST/DATABASE"),
        ("--state", INPUT, "The state folder, on this machine."),
    ):
        wrapped = click.option(name, type=kind, help=meaning)(wrapped)
    return connection_options(required=False, owner=True)(wrapped)


def storage_options(command: Callable[..., None]) -> Callable[..., None]:
    """`place_options` with --store, for a command that needs files."""
    meaning = "The object store that the servers were started with: s3://BUCKET/FOLDER"
    return place_options(click.option("--store", help=meaning)(command))


def closing_notice(console: Console) -> Waiting:
    """Says why a command waits for a round."""
    return lambda number, seconds: console.say(
        f"round {number} is closing: the server trains its model; waiting {seconds:.0f} s"
    )


def _options(required: bool) -> tuple[Callable[[Callable[..., None]], Callable[..., None]], ...]:
    return (
        click.option("--server", required=required, help="For example http://127.0.0.1:8080"),
        click.option(
            "--token",
            envvar="PHONOGRAD_TOKEN",
            show_envvar=True,
            help="What `phonograd tokens add` showed; other users can see an option's value, but not the variable's.",
        ),
        click.option(
            "--ca-cert", type=INPUT, help="PEM file of a certificate authority to trust in place of the system's."
        ),
        click.option("--token-over-http", is_flag=True, help="Send the token unencrypted to another machine."),
    )
