"""A server of this process, with the options of `phonograd serve`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

import phonograd
from phonograd.commands.configured import config_options
from phonograd.commands.round_settings import server_settings_from
from phonograd.config.serve import SERVE
from phonograd.config.values import Config
from phonograd.server_agg.settings.server import ServerSettings


def settings_of(*options: str) -> ServerSettings:
    """The settings that these options make."""
    made: list[ServerSettings] = []

    @click.command()
    @config_options(SERVE)
    def command(config: Config) -> None:
        made.append(server_settings_from(config))

    command.main([*options], standalone_mode=False)
    return made[0]


@contextlib.contextmanager
def serving(artifacts: Path, state: Path, *options: str) -> Iterator[str]:
    """The URL of a server on a free port, in a thread."""
    with phonograd.start_server(artifacts, state, settings_of("--port", "0", *options)) as server:
        yield server.url
