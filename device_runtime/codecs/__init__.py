"""The registry of update codecs, by the name that `--codec` and the file's metadata use."""

from collections.abc import Mapping

from device_runtime.codecs.base import Codec, Parts, Tile
from device_runtime.codecs.compressed import SUFFIX, Compressed
from device_runtime.codecs.delta_floats import DeltaBF16, DeltaF16
from device_runtime.codecs.delta_int8 import DeltaInt8
from device_runtime.codecs.full import FullF32
from device_runtime.codecs.rotated import Rotated
from device_runtime.codecs.rows import RowsF32
from device_runtime.codecs.top_rows import TopRows
from device_runtime.errors import UpdateError

PLAIN: tuple[Codec, ...] = (
    FullF32(), RowsF32(), DeltaF16(), DeltaBF16(), DeltaInt8(), Rotated(4), Rotated(2), Rotated(1), TopRows(),
)  # fmt: skip
CODECS: Mapping[str, Codec] = {codec.name: codec for codec in (*PLAIN, *map(Compressed, PLAIN))}

# Lossless and never larger than full-f32; see FORMAT.md for what its row list gives away.
DEFAULT_CODEC = RowsF32.name

__all__ = ["CODECS", "DEFAULT_CODEC", "Codec", "Parts", "Tile", "codec_named"]


def codec_named(name: str) -> Codec:
    """The codec of that name. Raises UpdateError naming those there are."""
    if name not in CODECS:
        plain = ", ".join(codec.name for codec in PLAIN)
        raise UpdateError(f"codec {name!r} is unknown; this version has {plain}, each also with {SUFFIX}")
    return CODECS[name]
