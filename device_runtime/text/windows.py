"""The token stream laid out in minibatch columns and cut into BPTT windows. FORMAT.md, "Windows"."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.text.vocabulary import EOS, Ids

# The target of padding: it counts for neither the loss nor anything else.
IGNORED = -1


@dataclass(frozen=True)
class Window:
    """One step's tokens and the tokens that follow them, both [T, B] int64; targets past the text's end are IGNORED."""

    tokens: Ids
    targets: Ids

    @property
    def predictions(self) -> int:
        """The number of targets that are not padding."""
        return int(np.count_nonzero(self.targets != IGNORED))


def columns(values: Ids, minibatch: int, fill: int) -> Ids:
    """A stream [N] as columns [ceil(N/B), B] of consecutive values, the last ones padded with `fill`."""
    height = -(-len(values) // minibatch)
    padded = np.full(height * minibatch, fill, np.int64)
    padded[: len(values)] = values
    return padded.reshape(minibatch, height).T


def windows(stream: Ids, minibatch: int, bptt: int) -> Iterator[Window]:
    """All windows of a stream of ids [N]: every token is predicted once, the first from `<eos>`.

    The last window is padded to T rows and masked, so that no text is lost.
    """
    tokens = columns(np.concatenate(([EOS], stream[:-1])), minibatch, EOS)
    targets = columns(stream, minibatch, IGNORED)
    for start in range(0, len(tokens), bptt):
        short = max(0, start + bptt - len(tokens))
        yield Window(
            np.pad(tokens[start : start + bptt], ((0, short), (0, 0)), constant_values=EOS),
            np.pad(targets[start : start + bptt], ((0, short), (0, 0)), constant_values=IGNORED),
        )
