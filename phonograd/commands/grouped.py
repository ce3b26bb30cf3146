"""Commands whose help has their options in groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedCommand(click.Command):
    """A command whose help lists options under the titles of `groups`, and those of no group at the end."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **more: Any):
        super().__init__(*args, **more)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups. Raises KeyError for an option that the command does not have, or that two groups have."""
        options = (param for param in self.get_params(ctx) if isinstance(param, click.Option))
        left = {option.opts[0]: record for option in options if (record := option.get_help_record(ctx))}
        groups = [(title, [left.pop(name) for name in names]) for title, names in self._groups.items()]
        for title, rows in (*groups, ("Other options", [*left.values()])):
            with formatter.section(title):
                formatter.write_dl(rows)
