"""`--strategy MODULE:CLASS`: a strategy of one's own, whose settings become options of its command."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import click

from phonograd.commands.options import Grouped, Options
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.aggregation.settings import STRATEGIES

STRATEGY_OPTION = "--strategy"
OWN = "a strategy of one's own"  # among values that an option counts with, and a context's options of such a one


class StrategyName(click.Choice[str]):
    """A strategy of phonograd, or one of one's own, which is loaded."""

    name = "strategy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Its name in the settings. Raises click.BadParameter."""
        if value in STRATEGIES:
            return str(value)
        from phonograd.server_agg.aggregation.own import load

        try:
            return load(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


STRATEGY = StrategyName(STRATEGIES)


class TakesStrategy(Grouped):
    """A command with `strategy_options`, and with those of a strategy of one's own that its line names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Its strategy is loaded first, as it says what options there are."""
        named = [after for one, after in zip(args, [*args[1:], ""], strict=True) if one == STRATEGY_OPTION]
        named += [one.partition("=")[2] for one in args if one.startswith(f"{STRATEGY_OPTION}=")]
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
    from phonograd.server_agg.aggregation.own import settings_class

    kind, taken = settings_class(name), {param.name for param in others}
    told = {field.name: str(field.metadata.get("help", "")) for field in dataclasses.fields(kind)}
    if both := sorted(taken & told.keys()):
        raise click.UsageError(f"--strategy {name}: setting {both[0]!r}: there is such an option; give it another name")

    def command() -> None: ...

    Options(kind).group(f"Strategy {name}", **told)(command)
    return [*reversed(getattr(command, "__click_params__", []))]
