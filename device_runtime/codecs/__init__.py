"""The registry of update codecs, by the name that `--codec` and the file's metadata use."""

from collections.abc import Mapping

from device_runtime.codecs.base import Codec, Tile
from device_runtime.codecs.full import FullF32
from device_runtime.codecs.rows import RowsF32
from device_runtime.errors import UpdateError

CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (FullF32(), RowsF32())}

# Lossless and never larger than full-f32; see FORMAT.md for what its row list gives away.
DEFAULT_CODEC = RowsF32.name

__all__ = ["CODECS", "DEFAULT_CODEC", "Codec", "Tile", "codec_named"]


def codec_named(name: str) -> Codec:
    """The codec of that name. Raises UpdateError naming those there are."""
    if name not in CODECS:
        raise UpdateError(f"codec {name!r} is unknown; this version has {', '.join(CODECS)}")
    return CODECS[name]
