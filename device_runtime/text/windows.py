"""The token stream laid out in minibatch columns and cut into BPTT windows. FORMAT.md, "Windows"."""

import numpy as np

from phonograd.device_runtime.engine.backend import Ids, Window
from phonograd.device_runtime.text.tokenizer import ids_at, plain_tokenizer


def windows(stream: Ids, minibatch: int, bptt: int) -> list[Window]:
    """Return all windows of a stream of ids [N]: every token is predicted once, the first from `<eos>`.

    The last window is padded to T rows and masked, so that no text is lost.
    """
    ids = np.ascontiguousarray(stream, np.int64)

    def copy_windows(inputs: int, targets: int, count: int) -> list[Ids]:
        return [ids_at(of, count * bptt * minibatch).reshape(-1, bptt, minibatch) for of in (inputs, targets)]

    parts = plain_tokenizer().call("pg_tokenizer_windows", ids, len(ids), bptt, minibatch, result=copy_windows)
    return [Window(tokens, following) for tokens, following in zip(*parts, strict=True)]
