"""The codecs of updates, by the name that the file's metadata has. FORMAT.md, "Updates"."""

from collections.abc import Mapping
from itertools import chain

GROUPS: Mapping[str, tuple[str, ...]] = {
    "lossless": ("full-f32", "rows-f32"),
    "quantised": ("delta-f16", "delta-bf16", "delta-int8", "rot-q4", "rot-q2", "rot-q1"),
    "sparse": ("top-rows",),
}
CODECS = tuple(chain(*GROUPS.values()))

# Lossless and never larger than full-f32; FORMAT.md, "What an update reveals", has what its list of rows says.
DEFAULT_CODEC = "rows-f32"
