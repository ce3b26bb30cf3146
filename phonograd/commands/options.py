"""Options made from what they set: a field of settings declares type and default, the command says the help.

Every command of `phonograd` shows its options' defaults; one that is None has it in the help.
"""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin

import click

from phonograd.commands.paths import INPUT
from phonograd.console import name_options
from phonograd.device_runtime.base.nearest import did_you_mean
from phonograd.device_runtime.engine.backend import MAX_THREADS

Settings = TypeVar("Settings")
Command = Callable[..., None]
Decorator = Callable[[Command], Command]


class FiniteNumber(click.types.FloatParamType):
    """A number, and neither NaN nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises click.BadParameter."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"a finite number expected, found {number}", param, ctx)
        return number


class FiniteRange(FiniteNumber, click.FloatRange):
    """A number in a range: NaN is in none, and infinity in no finite one."""


class Choice(click.Choice[Any]):
    """A choice whose refusal names the value that may be meant."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """What click says, and the nearest value."""
        return super().get_invalid_choice_message(value, ctx).rstrip(".") + did_you_mean(str(value), self.choices)


COUNT = click.IntRange(1)
THREADS = click.IntRange(1, MAX_THREADS)
FROM_0 = click.IntRange(0)


def opt(text: str | None = None, kind: Any = None, name: str | None = None, **more: Any) -> Mapping[str, Any]:
    """An option's help; its type and its name if they do not follow from the field; what else click is to know."""
    return {"help": text, "name": name} | ({} if kind is None else {"type": kind}) | more


def arg(**more: Any) -> Mapping[str, Any]:
    """An argument in place of an option."""
    return {"argument": True, **more}


class Options(Generic[Settings]):
    """Options that make settings: it decorates a command with them, and `take` makes the settings of their values."""

    def __init__(self, kind: Callable[..., Settings], **declared: str | Mapping[str, Any]):
        """kind: a dataclass, record or function; declared: its parameters that are options, by `opt` or by a help."""
        fields = inspect.signature(kind, eval_str=True).parameters
        self._kind = kind
        self._options = {name: _option_decorator(fields[name], one) for name, one in declared.items()}

    def __call__(self, command: Command) -> Command:
        """The command with these options."""
        return apply_decorators(command, *self._options.values())

    def take(self, options: dict[str, Any], **others: Any) -> Settings:
        """Make the settings of the command's options, which leave `options`, and of other fields.

        Raises click.UsageError for a setting out of range, by its option.
        """
        with usage_errors():
            return self._kind(**self.values(options), **others)

    def values(self, options: dict[str, Any]) -> dict[str, Any]:
        """The values of the command's options, which leave `options`, by field."""
        return {name: options.pop(name) for name in self._options}

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)


def own_options(command: Command) -> Command:
    """Options of the command's own parameters: `name: Annotated[TYPE, HELP] = DEFAULT`; `opt` or `arg` say more."""
    own = [one for one in inspect.signature(command).parameters.values() if get_origin(one.annotation) is Annotated]
    told = [get_args(one.annotation) for one in own]  # the type, and what was said of it
    return apply_decorators(
        command,
        *(_option_decorator(one.replace(annotation=kind), said) for one, (kind, said) in zip(own, told, strict=True)),
    )


def taking(name: str, make: Callable[[dict[str, Any]], Any], *decorators: Decorator) -> Callable[[Command], Command]:
    """Options whose values `make` takes out of the command's and makes into its parameter `name`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)  # with the parameters declared so far
        def run_command(**options: Any) -> None:
            command(**{name: make(options)}, **options)

        return apply_decorators(run_command, *decorators)

    return decorate


def _option_decorator(field: inspect.Parameter, told: str | Mapping[str, Any]) -> Decorator:
    default = {"required": True} if field.default is field.empty else {"default": field.default}
    given = opt(told) if isinstance(told, str) else told
    more = {**({} if "default" in given else default), **_type_of(field.annotation), **given}
    if more.pop("argument", False):
        return click.argument(field.name, **{"nargs": -1, **more} if more.pop("multiple", False) else more)
    option = more.pop("name") or f"--{field.name.replace('_', '-')}"
    return click.option(option, field.name, **more)


def _type_of(annotation: Any) -> dict[str, Any]:
    if get_origin(annotation) is Annotated:  # a record checks its ranges
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):  # such as one with None
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return {"type": Choice(get_args(annotation))}
    if annotation is bool:
        return {"is_flag": True}
    many = {"multiple": True} if get_origin(annotation) is tuple else {}
    kind = get_args(annotation)[0] if many else annotation
    return {"type": {Path: INPUT, float: FiniteNumber()}.get(kind, kind), **many}


def apply_decorators(command: Command, *decorators: Decorator) -> Command:
    """The command with these decorators, as if they stood above it in this order."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A setting's ValueError as a usage error that names the option."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(name_options(str(error))) from error


def refuse(reason: str, *names: str) -> None:
    """Raise UsageError for the first of these parameters that is on the command line, where it would be ignored."""
    for param in _given_params():
        if param.name in names:
            raise click.UsageError(f"{param.opts[0]}: {reason}")


def refuse_all_but(reason: str, *names: str) -> None:
    """Raise UsageError if another parameter than these is on the command line."""
    kept = (*names, "as_json", "quiet")
    refuse(reason, *(str(param.name) for param in _given_params() if param.name not in kept))


def _given_params() -> list[click.Parameter]:
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    return [one for one in context.command.params if context.get_parameter_source(str(one.name)) is source]
