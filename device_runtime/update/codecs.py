"""The registry of update codecs, by the name that the file's metadata has."""

from collections.abc import Mapping
from itertools import chain

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.update.codec import Codec, Parts, Tile
from phonograd.device_runtime.update.compressed import SUFFIX, Compressed
from phonograd.device_runtime.update.delta_floats import DeltaBF16, DeltaF16
from phonograd.device_runtime.update.delta_int8 import DeltaInt8
from phonograd.device_runtime.update.full import FullF32
from phonograd.device_runtime.update.rotated import Rotated
from phonograd.device_runtime.update.rotation import ROTATIONS
from phonograd.device_runtime.update.rows import RowsF32
from phonograd.device_runtime.update.top_rows import TopRows


def _groups(rotations: int) -> Mapping[str, tuple[Codec, ...]]:
    return {
        "lossless": (FullF32(), RowsF32()),
        "quantised": (DeltaF16(), DeltaBF16(), DeltaInt8(), *(Rotated(bits, rotations) for bits in (4, 2, 1))),
        "sparse": (TopRows(rotations=rotations),),
    }


def _named(plain: tuple[Codec, ...]) -> Mapping[str, Codec]:
    return {codec.name: codec for codec in (*plain, *map(Compressed, plain))}


GROUPS = _groups(ROTATIONS)
PLAIN = tuple(chain(*GROUPS.values()))
CODECS = _named(PLAIN)
# By the version that an update file says it is of. A phone may be older than its server; what is written is the newest.
VERSION = 2
CODECS_OF: Mapping[int, Mapping[str, Codec]] = {1: _named(tuple(chain(*_groups(1).values()))), VERSION: CODECS}

# Lossless and never larger than full-f32; see FORMAT.md for what its row list gives away.
DEFAULT_CODEC = RowsF32.name

__all__ = [
    "CODECS",
    "CODECS_OF",
    "DEFAULT_CODEC",
    "GROUPS",
    "PLAIN",
    "SUFFIX",
    "VERSION",
    "Codec",
    "Parts",
    "Tile",
    "codec_named",
]


def codec_named(name: str, version: int = VERSION) -> Codec:
    """The codec of that name, as a version of update files has it. Raises UpdateError naming those there are."""
    if name not in CODECS:
        plain = ", ".join(codec.name for codec in PLAIN)
        raise UpdateError(f"codec {name!r} is unknown; this version has {plain}, each also with {SUFFIX}")
    return CODECS_OF[version][name]
