"""Options of every command that talks to a server or works on its state folder; who is asking."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from phonograd.api.rounds import connect
from phonograd.console import Console
from phonograd.device_runtime.client.server_client import Connection, Waiting


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


def place_options(command: Callable[..., None], ledger: bool = False) -> Callable[..., None]:
    """Add --state and a connection's options; the command receives what was given as `place`: Connection or Path.

    ledger: also add --ledger, whose place is a str.
    """

    def wrapped(*args: Any, state: Path | None, connection: Connection | None, **options: Any) -> None:
        places = [place for place in (state, connection, options.pop("ledger", None)) if place is not None]
        if len(places) != 1:
            choices = "--state DIR, --ledger URL," if ledger else "--state DIR,"
            raise click.UsageError(f"give one of {choices} or --server URL and --token")
        command(*args, place=places[0], **options)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__dict__.update(command.__dict__)
    if ledger:
        wrapped = click.option("--ledger", help="The ledger of several servers: postgresql://USER@HOST/DATABASE")(
            wrapped
        )
    wrapped = click.option("--state", type=click.Path(path_type=Path), help="The state folder, on this machine.")(
        wrapped
    )
    return connection_options(required=False, owner=True)(wrapped)


def ledger_options(command: Callable[..., None]) -> Callable[..., None]:
    """`place_options` with --ledger."""
    return place_options(command, ledger=True)


def closing_notice(console: Console) -> Waiting:
    """Says why a command waits for a round."""
    return lambda number, seconds: console.say(
        f"round {number} is closing: the server trains its model; waiting {seconds:.0f} s"
    )


def _options(required: bool) -> tuple[Callable[[Callable[..., None]], Callable[..., None]], ...]:
    return (
        click.option("--server", required=required, help="For example http://127.0.0.1:8080"),
        click.option(
            "--token", envvar="PHONOGRAD_TOKEN", show_envvar=True,
            help="What `phonograd tokens add` showed; other users can see an option's value, but not the variable's.",
        ),
        click.option(
            "--ca-cert", type=click.Path(path_type=Path),
            help="PEM file of a certificate authority to trust in place of the system's.",
        ),
        click.option("--token-over-http", is_flag=True, help="Send the token unencrypted to another machine."),
    )  # fmt: skip
