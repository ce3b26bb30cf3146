"""`--engine`: what runs the workers."""

import click

from phonograd.api.engines import ENGINES

engine_option = click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default=ENGINES[0],
    show_default=True,
    help="What runs the workers: processes of this machine, or Ray (pip install 'phonograd[ray]').",
)
