"""Options made from the fields of settings: one place declares a default, and checks what a value may be."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from phonograd.commands.numbers import FiniteRange
from phonograd.commands.paths import INPUT
from phonograd.device_runtime.engine.backend import PRECISIONS
from phonograd.device_runtime.update.links import LinkCodec
from phonograd.help_groups import InGroup
from phonograd.server_agg.aggregation.settings import ESTIMATORS, NORMS, SERVER_OPTIMIZERS
from phonograd.server_agg.aggregation.strategies import STRATEGIES, WEIGHTINGS
from phonograd.server_agg.settings.rules import Late
from phonograd.server_agg.settings.security import Auth
from phonograd.simulation.settings import BACKENDS, DEVICES

Settings = TypeVar("Settings")
Decorator = Callable[[Callable[..., None]], Callable[..., None]]

CHOICES: Mapping[str, Sequence[str]] = {
    "precision": PRECISIONS,
    "backend": BACKENDS,
    "device": DEVICES,
    "late": get_args(Late),
    "publish": get_args(LinkCodec),
    "auth": get_args(Auth),
    "strategy": STRATEGIES,
    "weighting": WEIGHTINGS,
    "server_optimizer": SERVER_OPTIMIZERS,
    "attention_norm": NORMS,
    "estimator": ESTIMATORS,
}
# A setting in a message of the settings' own checks, which begins with the one it is about.
_SETTING = re.compile(r"^\w+|\w+_\w+")
OR_ALL = ("models_kept", "links_kept")
# Options that have not the setting's name: --clip-norm clips gradients elsewhere, and a delta is what a phone sends.
NAMES = {"clip_norm": "--dp-clip-norm", "delta": "--dp-delta", "learning_rate": "--lr"}


def settings_options(
    kind: type, helps: Mapping[str, str], command: Callable[..., None], group: str = "Options"
) -> Callable[..., None]:
    """Add an option for each setting in `helps`; the command receives them by the settings' names.

    group: their title in the help of a Grouped command.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name, text in reversed(list(helps.items())):
        command = _option(fields[name], text, group)(command)
    return command


@contextlib.contextmanager
def usage_errors(*names: Mapping[str, str]) -> Iterator[None]:
    """A setting's ValueError as a usage error that names the option. names: settings that have one."""
    known = {name for settings in names for name in settings}
    try:
        yield
    except ValueError as error:
        named = _SETTING.sub(lambda found: flag(found[0]) if found[0] in known else found[0], str(error))
        raise click.UsageError(named) from error


def taken(kind: type[Settings], names: Mapping[str, str], options: Mapping[str, Any]) -> Settings:
    """The settings that the options make. Raises ValueError for one out of range."""
    return kind(**{name: options[name] for name in names})


def number_or_all(text: str) -> int | None:
    """A whole number, or None for `all`. Raises ValueError for anything else."""
    return None if text == "all" else int(text)


def flag(setting: str) -> str:
    """The option of a setting."""
    return NAMES.get(setting, f"--{setting.replace('_', '-')}")


def _option(field: dataclasses.Field[Any], text: str, group: str) -> Decorator:
    shown = flag(field.name)
    option = functools.partial(click.option, shown, field.name, cls=InGroup, group=group, help=text)
    if field.name in CHOICES:
        choice = click.Choice(list(CHOICES[field.name]))
        return option(type=choice, default=field.default, show_default=True)
    kinds = [kind for kind in get_args(field.type) or (field.type,) if kind is not type(None)]
    if kinds == [bool]:
        return option(is_flag=True, default=field.default)
    kind: Any = {Path: INPUT, float: FiniteRange()}.get(kinds[0], kinds[0])
    if field.name in OR_ALL:
        kind = number_or_all
    return option(type=kind, default=field.default, show_default=field.default is not None)
