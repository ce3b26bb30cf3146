"""`phonograd config`: a command's configuration file, with every key, its default and what it means."""

from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.paths import INPUT
from phonograd.config.files import FILES
from phonograd.config.printed import print_file
from phonograd.config.values import Config
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import FieldError, parse
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.nearest import did_you_mean


@click.command()
@own_options
@output_options
def config(
    console: Console,
    command: Annotated[tuple[str, ...], arg(multiple=True, required=True, metavar="COMMAND", type=str)],
    report: Annotated[
        Path | None, opt("Write the values of a run: a report or result in JSON.", INPUT, "--from")
    ] = None,
) -> None:
    """Print the configuration file of COMMAND, such as `phonograd config serve > server.toml`.

    COMMAND: serve, simulate, train, pretrain, export, phone-bench, phone-round, bench capacity, privacy audit, privacy
    canaries, privacy membership, privacy empirical.
    """
    name = " ".join(command)
    if name not in FILES:
        raise click.UsageError(f"COMMAND: expected one of {', '.join(FILES)}, found {name}{did_you_mean(name, FILES)}")
    layout = FILES[name]()
    values = Config(layout) if report is None else Config.from_document(layout, _config_in(report), str(report))
    console.text({"config": values.document()}, print_file(layout, values).rstrip("\n"))


def _config_in(report: Path) -> dict[str, object]:
    try:
        found = parse(report.read_bytes())
    except OSError as error:
        raise UsageError(f"{report}: cannot be read: {error.strerror}; expected a report in JSON") from error
    except FieldError as error:
        raise UsageError(f"{report}: expected a report in JSON, found {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("config"), dict):
        raise UsageError(f"{report}: expected a report with `config`, found none")
    return dict(found["config"])
