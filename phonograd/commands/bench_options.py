"""Options that benchmarks share, and the command that repeats one."""

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from phonograd.bench.epoch import KINDS, kind_named
from phonograd.bench.synthetic import random_artifacts
from phonograd.commands.options import Decorator, opt
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.console import Console
from phonograd.device_runtime.base.nearest import did_you_mean

PRESET = "popov-2x650"
Names = tuple[str, ...]
UNREPEATED = ("--save", "--json", "--quiet")  # what they change is not the result


def list_of(allowed: Names) -> Callable[[click.Context, click.Parameter, str], Names]:
    """A callback that reads "a,b" and refuses what is not allowed or said twice."""

    def read(_context: click.Context, _parameter: click.Parameter, text: str) -> Names:
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            if name not in allowed or names.count(name) > 1:
                meant = did_you_mean(name, allowed)
                raise click.BadParameter(
                    f"{name!r}: expected each of {', '.join(allowed)} at most once, by commas{meant}"
                )
        return names

    return read


def names(allowed: Iterable[str], default: str, text: str, **more: Any) -> Mapping[str, Any]:
    """The option of a field that takes some of the names in `allowed`, separated by commas."""
    read = list_of(tuple(allowed))
    return opt(text, str, metavar="NAMES", callback=read, multiple=False, default=default, **more)


def names_option(name: str, allowed: Names, default: str, text: str) -> Decorator:
    """The same of an option that is no field; text: its help without the names."""
    return click.option(
        name, metavar="NAMES", callback=list_of(allowed), default=default, help=f"{text}: of {', '.join(allowed)}."
    )


def command_line() -> str:
    """The running command as it can be typed again on another machine: no paths but the names of them."""
    context = click.get_current_context()
    words = ["phonograd", "bench", str(context.command.name)]
    for parameter in context.command.params:
        value, name = context.params[str(parameter.name)], parameter.opts[0]
        said = context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
        if not said or name in UNREPEATED:
            continue
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(name)
        elif isinstance(value, Path) or name.endswith("-python"):
            words += [name, name.lstrip("-").upper()]
        elif parameter.multiple and value and isinstance(value[0], Path):
            words += [name, name.lstrip("-").upper() + "..."]
        elif parameter.multiple:
            words += [word for one in value for word in (name, str(one))]
        else:
            words += [name, ",".join(value) if isinstance(value, tuple) else str(value)]
    return " ".join(words)


artifacts_option = click.option(
    "--artifacts", type=INPUT, help=f"Artifacts folder to use.  [default: {PRESET} with random weights]"
)
save_option = click.option("--save", type=OUTPUT, help="Save the rounded result here, for `bench results`.")


def finish(console: Console, result: Mapping[str, Any], save: Path | None) -> None:
    """Save a benchmark's result where that is asked for, and print it."""
    from phonograd.bench.results import save_result, tables

    if save is not None:
        save_result(save, result, command_line())
    console.result(result, *tables(result))


@contextlib.contextmanager
def artifacts_or_random(
    console: Console, folder: Path | None, kind: str = KINDS[0], preset: str = PRESET
) -> Iterator[Path]:
    """Yield `folder`, or a kind of the preset with random weights, removed after the block."""
    if folder is not None:
        yield folder
        return
    from phonograd.export.presets import preset_named

    console.say(f"exporting {preset}, {kind}, with random weights")
    with tempfile.TemporaryDirectory() as place:
        yield random_artifacts(Path(place) / "artifacts", *kind_named(kind, preset_named(preset).model))
