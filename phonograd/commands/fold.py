"""`phonograd fold`: the average of stored updates."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.api.inputs import artifacts_of
from phonograd.api.updates import fold_updates
from phonograd.commands.options import COUNT, Options, arg, opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.commands.shared_options import ENGINE
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.pages import to_words

FOLD = Options(
    fold_updates,
    out=opt("Where to write the next model.", OUTPUT),
    weighting="An update's weight in the average.",
    engine=ENGINE,
    workers=opt("Ray's workers.  [default: one a core]", COUNT),
)


@click.command()
@own_options
@FOLD
@output_options
def fold(
    console: Console,
    base: Annotated[Path, arg()],
    updates: Annotated[tuple[Path, ...], arg()],
    **options: Any,
) -> None:
    """Average UPDATES, files or folders of them, made from model BASE: the model of a server's fedavg round of them.

    BASE is an artifacts folder or a tensor file. The result is the same to the bit for any order of the updates, any
    engine and any number of workers.
    """
    if options["workers"] is not None and options["engine"] == "local":
        raise click.UsageError("--workers needs --engine ray; one process folds locally")
    files = [file for path in updates for file in _files_of(path)]
    model: Any = artifacts_of(base) if base.is_dir() else base
    written = fold_updates(files, model, **options)
    document = {"model": str(options["out"]), "updates": len(files), **dataclasses.asdict(written)}
    console.result(document, ("Model", [to_words(document)]))


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file())
    if not files:
        raise UpdateError(f"{path}: no updates found; expected files of `phonograd train --update`")
    return files
