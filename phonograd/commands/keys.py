"""`phonograd keys init|new|sign|show`: the keys of masked rounds, the vendor's and phones'."""

from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import arg, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, output_options
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.masked.identity import certificate, new_key, public_key

NEW = arg(type=OUTPUT)


@click.group()
def keys() -> None:
    """Make the vendor's key, phones' keys, and the certificates by which phones know each other in masked rounds.

    Keep the vendor's key file off the server: whoever has it can pose as any number of phones.
    """


@keys.command()
@own_options
@output_options
def init(console: Console, file: Annotated[Path, NEW]) -> None:
    """Make the vendor's signing key in FILE; show its public key, for phones and `serve --vendor-key`."""
    _make(console, file)


@keys.command("new")
@own_options
@output_options
def new(console: Console, file: Annotated[Path, NEW]) -> None:
    """Make a phone's key in FILE; show its public key, for `keys sign`."""
    _make(console, file)


@keys.command()
@own_options
@output_options
def show(console: Console, file: Annotated[Path, arg()]) -> None:
    """Show the public key of a key file."""
    build_on_first_use(console)
    key = public_key(file)
    console.text({"public_key": key}, key)


@keys.command()
@own_options
@output_options
def sign(
    console: Console,
    vendor: Annotated[Path, arg()],
    phone: Annotated[str, arg()],
    key: Annotated[str, arg(metavar="PUBLIC_KEY")],
) -> None:
    """Certify PHONE, a name at the server, and its PUBLIC_KEY by the VENDOR's key file; show the certificate."""
    if not PHONE_NAME.match(phone):
        raise click.UsageError(f"PHONE: {PHONE_NAME_RULE} expected, found {phone[:80]!r}")
    build_on_first_use(console)
    made = certificate(vendor, phone, key)
    console.text({"phone": phone, "public_key": key, "certificate": made}, made)


def _make(console: Console, file: Path) -> None:
    build_on_first_use(console)
    key = new_key(file)
    console.text({"file": str(file), "public_key": key}, key)
