"""The token stream laid out in minibatch columns and cut into BPTT windows. FORMAT.md, "Windows"."""

import ctypes
from ctypes import c_int64, c_void_p

import numpy as np

from phonograd.device_runtime.engine.backend import Ids, Window
from phonograd.device_runtime.text.tokenizer import ids_at, plain_tokenizer


def windows(stream: Ids, minibatch: int, bptt: int) -> list[Window]:
    """All windows of a stream of ids [N]: every token is predicted once, the first from `<eos>`.

    The last window is padded to T rows and masked, so that no text is lost.
    """
    ids = np.ascontiguousarray(stream, np.int64)
    inputs, targets, count = c_void_p(), c_void_p(), c_int64()
    results = (ctypes.byref(inputs), ctypes.byref(targets), ctypes.byref(count))
    shape = (-1, bptt, minibatch)

    def copied() -> tuple[Ids, Ids]:
        size = count.value * bptt * minibatch
        return ids_at(inputs, size).reshape(shape), ids_at(targets, size).reshape(shape)

    parts = plain_tokenizer().call(
        "pg_tokenizer_windows", ids.ctypes.data, len(ids), bptt, minibatch, *results, result=copied
    )
    return [Window(tokens, following) for tokens, following in zip(*parts, strict=True)]
