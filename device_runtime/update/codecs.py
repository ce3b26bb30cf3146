"""The codecs of updates, by the name that the file's metadata has. FORMAT.md, "Updates"."""

from collections.abc import Mapping
from typing import Literal, get_args

CodecName = Literal[
    "full-f32", "rows-f32", "delta-f16", "delta-bf16", "delta-int8", "rot-q4", "rot-q2", "rot-q1", "top-rows"
]
CODECS: tuple[CodecName, ...] = get_args(CodecName)
GROUPS: Mapping[str, tuple[CodecName, ...]] = {
    "lossless": ("full-f32", "rows-f32"),
    "quantised": ("delta-f16", "delta-bf16", "delta-int8", "rot-q4", "rot-q2", "rot-q1"),
    "sparse": ("top-rows",),
}

# How many times larger the L2 norm of a decoded delta is than the trained one's: of rot-* the root of 1 plus the
# variance in FORMAT.md, of top-rows as `phonograd reproduce codec-norms` measured it. Others: less than 1.005.
NORM_FACTORS: Mapping[str, float] = {"rot-q2": 1.06, "rot-q1": 1.25, "top-rows": 2.1}

# Lossless and never larger than full-f32; FORMAT.md, "What an update reveals", has what its list of rows says.
DEFAULT_CODEC: CodecName = "rows-f32"
