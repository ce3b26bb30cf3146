"""`--codec`: how an update is encoded."""

import click

from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC, GROUPS

_GROUPS = (f"{group}: {', '.join(codec.name for codec in codecs)}" for group, codecs in GROUPS.items())
IN_GROUPS = f"{'; '.join(_GROUPS).capitalize()}."

codec_option = click.option(
    "--codec",
    type=click.Choice(list(CODECS)),
    metavar="NAME",
    default=DEFAULT_CODEC,
    show_default=True,
    help=f"The update's encoding. {IN_GROUPS}",
)
