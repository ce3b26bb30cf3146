"""Former names of commands and options: they work in this version, and a line on stderr names today's."""

from collections.abc import Mapping
from typing import Any

import click

from phonograd.help_groups import Grouped


def say_today(former: str, today: str) -> None:
    """Name today's on stderr, also with --quiet: it is in scripts that former names stay."""
    click.echo(f"phonograd: warning: {former} is now {today}; only this version still takes the former name", err=True)


class Renamed(Grouped):
    """A command whose options had other names; `former`: today's name by the former one, both with their dashes."""

    def __init__(self, *args: Any, former: Mapping[str, str], **settings: Any):
        super().__init__(*args, **settings)
        self.former = former

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line as it reads with today's names."""
        return super().parse_args(ctx, [self._today(arg) for arg in args])

    def _today(self, arg: str) -> str:
        name, equals, value = arg.partition("=")
        if name not in self.former:
            return arg
        say_today(name, self.former[name])
        return self.former[name] + equals + value
