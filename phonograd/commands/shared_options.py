"""Options that several commands have."""

import click

from phonograd.api.engines import ENGINES
from phonograd.commands.options import COUNT, Command, decorated
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC, GROUPS
from phonograd.device_runtime.update.update_file import MAX_COUNT

_GROUPS = (f"{group}: {', '.join(codecs)}" for group, codecs in GROUPS.items())
IN_GROUPS = f"{'; '.join(_GROUPS).capitalize()}."

# Helps of --backend and --weights.
BACKEND = "The backend that runs the graph."
WEIGHTS = "Tensor file to start from: a later round's model, or a torch state dict. [default: the folder's weights]"
# Of phones' training settings.
PACE = {
    "duty": "Share of the time that steps take; below 1, rests keep phones cooler.",
    "nice": "Lower the priority to this nice value, at most 19.",
}
codec_option = click.option(
    "--codec",
    type=click.Choice(list(CODECS)),
    metavar="NAME",
    default=DEFAULT_CODEC,
    help=f"The update's encoding. {IN_GROUPS}",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    help="What runs the workers: processes of this machine, or Ray (pip install 'phonograd[ray]').",
)
rehearsal_option = click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
users_option = click.option("--users", type=INPUT, required=True, help="As in phonograd simulate.")
workers_option = click.option("--workers", type=COUNT, help="Processes that train.  [default: one a core]")
page_option = click.option("--page", type=OUTPUT, help="Write an HTML page with plots here.")


def seed_options(command: Command) -> Command:
    """`--phone` and `--seed`, given as `phone` (str or None) and `seed` (int or None). FORMAT.md, "Seeds"."""
    return decorated(
        command,
        click.option(
            "--phone",
            callback=_phone_name,
            help="The phone's name at the server; the seed is derived from model, round and name.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, MAX_COUNT),
            help="In place of --phone: seed of the rehearsal draw, dropout and random codecs.  [default: random]",
        ),
    )


def require_one_seed(seed: int | None, phone: str | None) -> None:
    """Raise UsageError where both options are given."""
    if seed is not None and phone is not None:
        raise click.UsageError("--seed and --phone exclude each other; give one")


def _phone_name(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not PHONE_NAME.match(value):
        raise click.BadParameter(f"expected {PHONE_NAME_RULE}, found {value[:80]!r}")
    return value
