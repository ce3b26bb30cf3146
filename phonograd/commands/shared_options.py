"""Options that several commands have."""

from collections.abc import Mapping
from typing import Any

import click

from phonograd.commands.options import COUNT, opt, refuse
from phonograd.commands.paths import INPUT
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC, GROUPS
from phonograd.device_runtime.update.update_file import MAX_COUNT

_GROUPS = (f"{group}: {', '.join(codecs)}" for group, codecs in GROUPS.items())
IN_GROUPS = f"{'; '.join(_GROUPS).capitalize()}."

# Helps of --backend and --weights.
BACKEND = "The backend that runs the graph."
PREDICTION_WEIGHTS = (
    "A later round's model, a torch state dict, or prediction weights.  [default: the folder's prediction weights, "
    "else its weights]"
)
PERSONAL = "The user's own words, a file of `phonograd personal`, to suggest as well."
CODEC = opt(f"The update's encoding. {IN_GROUPS}", click.Choice(list(CODECS)), metavar="NAME", default=DEFAULT_CODEC)
# Of masked rounds.
VENDOR = opt(
    "The vendor's public key: phones without its certificate are refused.  [default: phones are known by the key that "
    "they had first]"
)
MIN_COHORT = opt("The fewest phones that a phone takes part with in a masked round.", COUNT)
ENGINE = opt("What runs the workers: processes of this machine, or Ray (pip install 'phonograd[ray]').")
REHEARSAL = opt("General text to draw rehearsal messages from.", INPUT)
USERS = opt("As in phonograd simulate.", INPUT)


def phone_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that names a phone. Raises click.BadParameter."""
    if value is not None and not PHONE_NAME.match(value):
        raise click.BadParameter(f"expected {PHONE_NAME_RULE}, found {value[:80]!r}")
    return value


# FORMAT.md, "Seeds".
PHONE = opt("The phone's name at the server; the seed is derived from model, round and name.", callback=phone_name)
SEED = opt(
    "In place of --phone: seed of the rehearsal draw, dropout and random codecs.  [default: random]",
    click.IntRange(0, MAX_COUNT),
)


def refuse_share_alone(options: Mapping[str, Any]) -> None:
    """Raise UsageError for --user-share without --rehearsal."""
    if options["rehearsal"] is None:
        refuse("expected with --rehearsal, the general text to mix in", "user_share")
