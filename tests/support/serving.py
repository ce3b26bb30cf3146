"""A server of this process, with the options of `phonograd serve`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import phonograd
from phonograd.commands.serve_options import serve_options, settings_from
from phonograd.server_agg.settings.server import ServerSettings


def settings_of(*options: str) -> ServerSettings:
    """The settings that these options make."""
    made: list[ServerSettings] = []

    @click.command()
    @serve_options
    def command(**given: Any) -> None:
        made.append(settings_from(given))

    command.main([*options], standalone_mode=False)
    return made[0]


@contextlib.contextmanager
def serving(artifacts: Path, state: Path, *options: str) -> Iterator[str]:
    """The URL of a server on a free port, in a thread."""
    with phonograd.start_server(artifacts, state, settings_of("--port", "0", *options)) as server:
        yield server.url
