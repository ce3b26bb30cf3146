"""`--phone` and `--seed`: where a command's seed comes from. FORMAT.md, "Seeds"."""

from collections.abc import Callable
from typing import TypeVar

import click

from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.update.update_file import MAX_COUNT

Command = TypeVar("Command", bound=Callable[..., object])


def seed_options(command: Command) -> Command:
    """`--phone` and `--seed`, given as `phone` (str or None) and `seed` (int or None)."""
    phone = click.option(
        "--phone",
        callback=_phone_name,
        help="The phone's name at the server; the seed is derived from model, round and name.",
    )
    seed = click.option(
        "--seed",
        type=click.IntRange(0, MAX_COUNT),
        help="In place of --phone: seed of the rehearsal draw, dropout and random codecs.  [default: random]",
    )
    return phone(seed(command))


def require_one_seed(seed: int | None, phone: str | None) -> None:
    """Raise UsageError where both options are given."""
    if seed is not None and phone is not None:
        raise click.UsageError("--seed and --phone exclude each other; give one")


def _phone_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    del context, parameter
    if value is not None and not PHONE_NAME.match(value):
        raise click.BadParameter(f"expected {PHONE_NAME_RULE}, found {value[:80]!r}")
    return value
