"""`phonograd keys init|new|show|sign`: the keys of masked rounds, the vendor's and phones'."""

from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import arg, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, output_options
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.masked import phone as library

NEW = arg(type=OUTPUT)


@click.group()
def keys() -> None:
    """Make the vendor's key, phones' keys, and the certificates by which phones know each other in masked rounds.

    Keep the vendor's key file off the server: with it, anyone can pose as any number of phones.
    """


@keys.command()
@own_options
@output_options
def init(console: Console, file: Annotated[Path, NEW]) -> None:
    """Make the vendor's signing key in FILE; show its public key, for phones and `serve --vendor-key`."""
    build_on_first_use(console)
    _show(console, library.new_identity(file))


@keys.command()
@own_options
@output_options
def new(console: Console, file: Annotated[Path, NEW]) -> None:
    """Make a phone's key in FILE; show its public key, for `keys sign`."""
    build_on_first_use(console)
    _show(console, library.new_identity(file))


@keys.command()
@own_options
@output_options
def show(console: Console, file: Annotated[Path, arg()]) -> None:
    """Show the public key of the key in FILE."""
    build_on_first_use(console)
    _show(console, library.public_identity(file))


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
    made = library.certify(vendor, phone, key)
    console.text({"phone": phone, "public_key": key, "certificate": made}, made)


def _show(console: Console, key: str) -> None:
    console.text({"public_key": key}, key)
