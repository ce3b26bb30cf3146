"""`--strategy MODULE:CLASS`: a strategy of one's own, whose settings become options."""

import dataclasses
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import click

from phonograd.commands.options import Grouped, Options
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.own_classes import OwnClasses
from phonograd.server_agg.aggregation.settings import STRATEGIES

OWN = "a class of one's own"  # among values that an option counts with, and a context's options of such


class StrategyName(click.Choice[str]):
    """One of phonograd's, or one of one's own, which is loaded."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Its name in the settings. Raises click.BadParameter."""
        if value in self.choices:
            return str(value)
        try:
            return own_strategies().load(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


STRATEGY = StrategyName(STRATEGIES)


def own_strategies() -> OwnClasses[Any]:
    """The strategies of one's own; a command that names none need not wait for the import."""
    from phonograd.server_agg.aggregation import own

    return own.OWN


class TakesOwn(Grouped):
    """A command whose --strategy may name one of one's own; it has an option for each of that one's settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is named is loaded first, as it says what options there are."""
        named = [after for one, after in pairwise(args) if one == "--strategy"]
        named += [one.partition("=")[2] for one in args if one.startswith("--strategy=")]
        if named and named[-1] not in STRATEGIES:
            ctx.meta[OWN] = own_params(STRATEGY.convert(named[-1], None, ctx), super().get_params(ctx))
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Those of one's own last."""
        return [*super().get_params(ctx), *ctx.meta.get(OWN, [])]


def own_params(name: str, others: Iterable[click.Parameter]) -> list[click.Parameter]:
    """The options of a loaded strategy's settings, one a field; its help is the field's metadata of that name.

    Raises click.UsageError for one that there is already.
    """
    settings, taken = own_strategies().settings_class(name), {param.name for param in others}
    told = {field.name: str(field.metadata.get("help", "")) for field in dataclasses.fields(settings)}
    if both := sorted(taken & told.keys()):
        raise click.UsageError(f"--strategy {name}: setting {both[0]!r}: there is such an option; give it another name")

    def command() -> None: ...

    Options(settings).group(f"Strategy {name}", **told)(command)
    return [*reversed(getattr(command, "__click_params__", []))]


def own_values(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The settings of a loaded strategy, whose options leave `options`."""
    return {field.name: options.pop(field.name) for field in dataclasses.fields(own_strategies().settings_class(name))}
