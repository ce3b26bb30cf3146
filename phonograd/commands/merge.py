"""`phonograd merge`: a plain model of one with adapters."""

import dataclasses
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, output_options


@click.command()
@own_options
@output_options
def merge(
    console: Console,
    model: Annotated[Path, arg()],
    out: Annotated[Path, opt("Where to write the plain model.", OUTPUT)],
) -> None:
    """Add MODEL's adapters to its matrices: the same model without them, for the artifacts of an export without.

    MODEL is an artifacts folder or a tensor file, such as a later round's.
    """
    from phonograd.api.model import merge as merge_adapters

    build_on_first_use(console)
    document = {"model": str(out), **dataclasses.asdict(merge_adapters(model, out))}
    console.result(document, ("Model", [document]))
