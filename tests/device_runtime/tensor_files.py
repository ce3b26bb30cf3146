"""Tensor files, good and hostile, for the readers in Python and C++."""

import json
import struct
from pathlib import Path

import numpy as np

TENSORS = {
    "embedding.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "half": np.array([0.5, -2], np.float16),
    "rows": np.array([1, 7], np.uint32),
    "empty": np.zeros((0, 4), np.float32),
    "scalar": np.array(3, np.int64),
}


def write_raw(path: Path, header: object, data: bytes = b"") -> None:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE = {
    "not json": (b"{nonsense", b"", "not valid JSON"),
    "not utf-8": (b"\xff\xfe", b"", "not valid JSON"),
    "a list": ([1], b"", "expected an object"),
    "deep nesting": (b'{"a":' * 5000 + b"1" + b"}" * 5000, b"", "not valid JSON|expected dtype"),
    "duplicate name": (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}', b"", "twice"),
    "bad metadata": ({"__metadata__": {"a": 1}}, b"", "__metadata__"),
    "path in name": ({"../../etc/passwd": entry()}, b"0000", "tensor name"),
    "newline after name": ({"a\n": entry()}, b"0000", "tensor name"),
    "empty name": ({"": entry()}, b"0000", "tensor name"),
    "missing field": ({"a": {"dtype": "F32"}}, b"", "expected dtype, shape and data_offsets"),
    "unknown dtype": ({"a": entry(dtype="F31")}, b"0000", "unknown dtype"),
    "dtype of wrong kind": ({"a": entry(dtype=[1])}, b"0000", "dtype: expected a string|unknown dtype"),
    "negative size": ({"a": entry(shape=[-1])}, b"0000", r"shape\[0\]: expected a whole number|list of up to"),
    "true as size": ({"a": entry(shape=[True])}, b"0000", r"shape\[0\]: expected a whole number|list of up to"),
    "too many dimensions": (
        {"a": entry(shape=[1] * 9)},
        b"0000",
        "expected a list of length <= 8|list of up to",
    ),
    "overflowing shape": ({"a": entry(shape=[1 << 61, 1 << 61])}, b"0000", "sizes make 2.63 bytes or more"),
    "empty and overflowing": ({"a": entry(shape=[0, 1 << 61], offsets=[0, 0])}, b"", "sizes make 2.63 bytes or more"),
    "offsets too short": ({"a": entry(offsets=[0, 3])}, b"000", "4 bytes expected"),
    "offsets backwards": ({"a": entry(offsets=[4, 0])}, b"0000", "4 bytes expected"),
    "gap": ({"a": entry(offsets=[4, 8])}, b"00000000", "gap or an overlap"),
    "overlap": ({"a": entry(), "b": entry()}, b"0000", "gap or an overlap"),
    "truncated data": ({"a": entry()}, b"00", "truncated"),
    "trailing data": ({"a": entry()}, b"000000", "belong to no tensor"),
}
