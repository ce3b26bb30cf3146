"""`--codec` and `--zstd`: how an update is encoded. Files and the Python API name both in one word, NAME+zstd."""

import functools
from collections.abc import Callable
from typing import Any

import click

from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC, GROUPS, PLAIN, SUFFIX
from phonograd.former_names import say_today

NAMES = tuple(codec.name for codec in PLAIN)
_GROUPS = (f"{group}: {', '.join(codec.name for codec in codecs)}" for group, codecs in GROUPS.items())
IN_GROUPS = f"{'; '.join(_GROUPS).capitalize()}."


class CodecName(click.Choice[str]):
    """A codec without zstd; the former NAME+zstd is taken too, with a hint."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as files have it."""
        return today(value, "--codec") if value in CODECS else super().convert(value, param, ctx)


def codec_option(kind: click.Choice[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """--codec alone, of what writes updates without zstd; the command receives `codec`."""
    return click.option(
        "--codec",
        type=kind,
        metavar="NAME",
        default=DEFAULT_CODEC,
        show_default=True,
        help=f"The update's encoding. {IN_GROUPS}",
    )


def codec_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --codec and --zstd; the command receives both as `codec`, the name that files have."""

    @functools.wraps(command)
    def wrapped(*args: Any, codec: str, zstd: bool, **options: Any) -> None:
        command(*args, codec=with_zstd(codec) if zstd else codec, **options)

    zstd = click.option("--zstd", is_flag=True, help="Also compress the update with zstd, losslessly.")
    return codec_option(CodecName(NAMES))(zstd(wrapped))


def with_zstd(codec: str) -> str:
    """The name of a codec that also goes through zstd."""
    return codec.removesuffix(SUFFIX) + SUFFIX


def today(codec: str, option: str) -> str:
    """A codec's name as it was given to that option, with a hint if the name says that it goes through zstd."""
    if codec not in NAMES:
        say_today(f"{option} {codec}", f"{option} {codec.removesuffix(SUFFIX)} --zstd")
    return codec
