"""`phonograd fold`: the average of stored updates."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from phonograd.api.engines import Engine
from phonograd.commands.options import COUNT
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.commands.shared_options import engine_option
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.server_agg.aggregation.settings import WEIGHTINGS, StrategySettings


@click.command()
@click.argument("base", type=INPUT)
@click.argument("updates", type=INPUT, nargs=-1, required=True)
@click.option("--out", type=OUTPUT, required=True, help="Where to write the next model.")
@click.option(
    "--weighting",
    type=click.Choice(WEIGHTINGS),
    default=StrategySettings.weighting,
    help="An update's weight in the average.",
)
@engine_option
@click.option("--workers", type=COUNT, help="Ray's workers.  [default: one a core]")
@output_options
def fold(
    console: Console,
    base: Path,
    updates: tuple[Path, ...],
    out: Path,
    weighting: str,
    engine: Engine,
    workers: int | None,
) -> None:
    """Average UPDATES, files or folders of them, made from model BASE: the model of a server's fedavg round of them.

    BASE is an artifacts folder or a tensor file. The result is the same to the bit for any order of the updates, any
    engine and any number of workers.
    """
    from phonograd.api.inputs import artifacts_of
    from phonograd.api.updates import fold_updates

    if workers is not None and engine == "local":
        raise click.UsageError("--workers needs --engine ray; one process folds locally")
    files = [file for path in updates for file in _files_of(path)]
    model: Any = artifacts_of(base) if base.is_dir() else base
    written = fold_updates(files, model, out, weighting=weighting, engine=engine, workers=workers)
    document = {"model": str(out), "updates": len(files), **dataclasses.asdict(written)}
    console.result(document, ("Model", [document]))


def _files_of(path: Path) -> list[Path]:
    """The file, or those in the folder. Raises UpdateError for a folder without one."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.is_file())
    if not found:
        raise UpdateError(f"{path}: no updates found; expected files of `phonograd train --update`")
    return found
