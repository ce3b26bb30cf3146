"""The registry of update codecs, by the name that the file's metadata has."""

from collections.abc import Mapping
from itertools import chain

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.update.codec import Codec, Tile
from phonograd.device_runtime.update.delta_floats import DeltaBF16, DeltaF16
from phonograd.device_runtime.update.delta_int8 import DeltaInt8
from phonograd.device_runtime.update.full import FullF32
from phonograd.device_runtime.update.rotated import Rotated
from phonograd.device_runtime.update.rows import RowsF32
from phonograd.device_runtime.update.top_rows import TopRows

GROUPS: Mapping[str, tuple[Codec, ...]] = {
    "lossless": (FullF32(), RowsF32()),
    "quantised": (DeltaF16(), DeltaBF16(), DeltaInt8(), *map(Rotated, (4, 2, 1))),
    "sparse": (TopRows(),),
}
CODECS: Mapping[str, Codec] = {codec.name: codec for codec in chain(*GROUPS.values())}

# Lossless and never larger than full-f32; see FORMAT.md for what its row list gives away.
DEFAULT_CODEC = RowsF32.name

__all__ = [
    "CODECS",
    "DEFAULT_CODEC",
    "GROUPS",
    "Codec",
    "Tile",
    "codec_named",
]


def codec_named(name: str) -> Codec:
    """The codec of that name. Raises UpdateError naming those there are."""
    if name not in CODECS:
        raise UpdateError(f"codec {name!r} is unknown; this version has {', '.join(CODECS)}")
    return CODECS[name]
