"""`--strategy MODULE:CLASS`, `--codec MODULE:CLASS`: classes of one's own, whose settings become options."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import click

from phonograd.commands.options import Grouped, Options, usage_errors
from phonograd.commands.shared_options import CODEC
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.own_classes import OwnClasses
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.aggregation.settings import STRATEGIES

OWN = "a class of one's own"  # among values that an option counts with, and a context's options of such


class OwnName(click.Choice[str]):
    """One of phonograd's, or one of one's own, which is loaded. module: has the OwnClasses of its kind."""

    def __init__(self, name: str, known: Sequence[str], module: str):
        super().__init__(known)
        self.name, self._module = name, f"phonograd.{module}"

    @property
    def classes(self) -> OwnClasses[Any]:
        """Those of its kind; a command that names none need not wait for the import."""
        found: OwnClasses[Any] = import_module(self._module).OWN
        return found

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Its name in the settings. Raises click.BadParameter."""
        if value in self.choices:
            return str(value)
        try:
            return self.classes.load(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


_CODECS = "device_runtime.update.own_codec"
STRATEGY = OwnName("strategy", STRATEGIES, "server_agg.aggregation.own")
CODEC_OR_OWN = {
    **CODEC,
    "type": OwnName("codec", CODECS, _CODECS),
    "help": f"{CODEC['help']} Or MODULE:CLASS of your own.",
}
_NAMED: Mapping[str, Any] = {
    "help": "MODULE:CLASS of a codec of your own that updates may have; may be repeated.",
    "type": OwnName("codec", (), _CODECS),
    "metavar": "NAME",
}
OWN_CODECS = {"name": "--codec", **_NAMED}
loads_codecs = click.option("--codec", multiple=True, expose_value=False, **_NAMED)


class TakesOwn(Grouped):
    """A command whose line may name classes of one's own; it has an option for each of their settings.

    An option that may be repeated only names them: settings come with updates.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is named is loaded first, as it says what options there are."""
        own: list[click.Parameter] = []
        for param in self.params:
            kind, option = param.type, param.opts[0]
            if not isinstance(kind, OwnName) or param.multiple:
                continue
            named = [after for one, after in pairwise(args) if one == option]
            named += [one.partition("=")[2] for one in args if one.startswith(f"{option}=")]
            if named and named[-1] not in kind.choices:
                own += own_params(kind, kind.convert(named[-1], None, ctx), [*super().get_params(ctx), *own])
        ctx.meta[OWN] = own
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Those of one's own last."""
        return [*super().get_params(ctx), *ctx.meta.get(OWN, [])]


def own_params(kind: OwnName, name: str, others: Iterable[click.Parameter]) -> list[click.Parameter]:
    """The options of a loaded class's settings, one a field; its help is the field's metadata of that name.

    Raises click.UsageError for one that there is already.
    """
    settings, taken = kind.classes.settings_class(name), {param.name for param in others}
    told = {field.name: str(field.metadata.get("help", "")) for field in dataclasses.fields(settings)}
    if both := sorted(taken & told.keys()):
        raise click.UsageError(
            f"--{kind.name} {name}: setting {both[0]!r}: there is such an option; give it another name"
        )

    def command() -> None: ...

    Options(settings).group(f"{kind.name.capitalize()} {name}", **told)(command)
    return [*reversed(getattr(command, "__click_params__", []))]


def own_values(kind: OwnName, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The settings of a loaded class, whose options leave `options`."""
    return {field.name: options.pop(field.name) for field in dataclasses.fields(kind.classes.settings_class(name))}


def codec_from(options: dict[str, Any]) -> str:
    """The codec with its settings, whose options leave `options`. Raises click.UsageError for a value out of range."""
    name = str(options.pop("codec"))
    if name in CODECS:
        return name
    from phonograd.device_runtime.update.own_codec import own_codec

    with usage_errors():
        return own_codec(name, **own_values(CODEC_OR_OWN["type"], name, options))
