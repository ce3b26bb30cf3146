"""Options that several commands have."""

import click

from phonograd.commands.options import Choice, opt
from phonograd.commands.paths import INPUT
from phonograd.device_runtime.base.errors import how_to_install
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC, GROUPS
from phonograd.device_runtime.update.update_file import MAX_COUNT

_GROUPS = (f"{group}: {', '.join(codecs)}" for group, codecs in GROUPS.items())
IN_GROUPS = f"{'; '.join(_GROUPS).capitalize()}."

# Help of --weights.
PREDICTION_WEIGHTS = (
    "A later round's model, a torch state dict, or prediction weights.  [default: the folder's prediction weights, "
    "else its weights]"
)
PERSONAL = "The user's own words, a file of `phonograd personal`, to suggest as well."
CODEC = opt(f"The update's encoding. {IN_GROUPS}", Choice(list(CODECS)), metavar="NAME", default=DEFAULT_CODEC)
ENGINE = opt(f"What runs the workers: processes of this machine, or Ray ({how_to_install('ray')}).")
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
