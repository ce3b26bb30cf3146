"""Commands with a configuration file: --config, --set, and an option for each key that changes from call to call."""

import functools
from pathlib import Path
from typing import Any

import click

from phonograd.commands.options import Choice, Command, Decorator, FiniteNumber, apply_decorators
from phonograd.commands.paths import INPUT
from phonograd.config.layout import Layout
from phonograd.config.values import SET, Config
from phonograd.console import NAMES
from phonograd.device_runtime.base.settings import Field


def config_options(layout: Layout, **types: click.ParamType[Any]) -> Decorator:
    """Add --config, --set and the layout's flags to a command, which receives a Config as `config`.

    types: of flags whose type does not follow from the field, such as a file to write, by the field's name.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run_command(config: Path | None, assignments: tuple[str, ...], **options: Any) -> None:
            context = click.get_current_context()
            given = {}
            for key in layout.flags:
                value = options.pop(_parameter(key))
                if value is not None and value is not False and value != ():
                    given[key] = value
            values = Config(layout, config, assignments, given)
            for key, value in values.paths():
                if key not in given:  # so that no output replaces an input, whatever names it
                    types.get(keys[key][1].name, INPUT).convert(value, None, context)
            context.meta[NAMES] = values.names()
            command(config=values, **options)

        keys = layout.keys()
        flags = [_flag(layout, key, keys[key][1], types) for key in layout.flags]
        text = f"Settings from a TOML file; `phonograd config {layout.command}` prints one with all keys."
        file = click.option("--config", type=INPUT, help=text)
        sets = click.option(
            SET, "assignments", multiple=True, metavar="KEY=VALUE", help="Set one key of the file; may be repeated."
        )
        return apply_decorators(run_command, *flags, file, sets)

    return decorate


def _parameter(key: str) -> str:
    return key.replace(".", "_").replace("-", "_")


def _flag(layout: Layout, key: str, field: Field, types: dict[str, click.ParamType[Any]]) -> Decorator:
    option = layout.option(key)
    if not option.startswith("-"):
        many: dict[str, Any] = {"nargs": -1} if field.many else {}
        return click.argument(
            _parameter(key), required=False, metavar=option, type=types.get(field.name, INPUT), **many
        )
    told = field.required or field.default is None or field.default is False or field.default == ()
    text = field.about if told else f"{field.about}  [default: {field.default}]"
    if key.replace("_", "-") != option.lstrip("-"):
        text += f"  [key: {key}]"
    more: dict[str, Any] = {"type": types.get(field.name, _type_of(field)), "multiple": field.many}
    if field.kind is str and field.name in types:
        more["metavar"] = "NAME"  # the help has them
    if field.kind is bool:
        more = {"is_flag": True}
    return click.option(option, _parameter(key), help=text, default=None, show_default=False, **more)


def _type_of(field: Field) -> Any:
    if field.choices and field.kind is type(None):
        return Choice(list(field.choices))
    return {Path: INPUT, float: FiniteNumber()}.get(field.kind, field.kind)
