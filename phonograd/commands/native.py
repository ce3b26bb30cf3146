"""`phonograd build-phone`: the command that phones run."""

import dataclasses
from pathlib import Path

import click

from phonograd.console import Console, output_options
from phonograd.native_engine import building


@click.command("build-phone")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("phonograd-phone"),
    show_default=True,
    help="Where the binary goes.",
)
@click.option("--force", is_flag=True, help="Compile it, even where it came with the wheel or lies in the cache.")
@output_options
def build_phone(console: Console, out: Path, force: bool) -> None:
    """One static binary for any arm64 Android phone, checked; the wheel brings it, a source checkout builds it."""
    from phonograd.device_runtime.base.files import require_place
    from phonograd.device_runtime.native_build import deliver_phone_binary

    require_place(out)
    with building(console, "the phone binary") as show:
        delivered = deliver_phone_binary(out, force, show)
    document = {**dataclasses.asdict(delivered.binary), "origin": delivered.origin}
    console.result(document, ("Phone binary", [{"fact": key, "value": value} for key, value in document.items()]))
