"""What a model is pre-trained on: token streams of texts, and how a stream is laid out for truncated BPTT."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary

HELD_OUT_SHARE = 0.05  # of the messages, when no validation text is given


@dataclass(frozen=True)
class Corpus:
    """training: a token stream, int64 [N]: each message's words and `<eos>`, see `Vocabulary.encode`. validation:
    messages.
    """

    training: Ids
    validation: Sequence[bytes]


def load_corpus(texts: Sequence[Path], vocabulary: Vocabulary, validation: Path | None = None) -> Corpus:
    """Encode texts, one message a line; without a validation text the last 5 % of the messages are held out.

    Raises TextError: a text is missing or empty, or has one message only and none can be held out.
    """
    if not texts:
        raise TextError("pre-training: no text given, expected at least one file, one message a line")
    messages = [message for path in texts for message in read_messages(path)]
    if validation is not None:
        return Corpus(vocabulary.encode(messages), read_messages(validation))
    if len(messages) < 2:
        raise TextError(
            f"{texts[0]}: 1 message found, expected at least 2 to hold one out; give more text or a validation text"
        )
    kept = len(messages) - math.ceil(HELD_OUT_SHARE * len(messages))
    return Corpus(vocabulary.encode(messages[:kept]), messages[kept:])


@dataclass(frozen=True)
class Columns:
    """A stream cut into B columns of L tokens, read in windows of T rows; the last window may be shorter.

    Column b follows on column b - 1 in the stream, so that h and c carried from window to window belong to the text
    before them. `inputs` and `targets`, int64 [L, B], are views of the stream; the last (N - 1) % B tokens are left
    out.
    """

    inputs: Ids
    targets: Ids
    bptt: int

    @property
    def minibatch(self) -> int:
        """The number of columns, B."""
        return int(self.inputs.shape[1])

    @property
    def windows(self) -> int:
        """Windows, that is steps, in one pass over the stream."""
        return math.ceil(len(self.inputs) / self.bptt)

    def window(self, index: int) -> tuple[Ids, Ids]:
        """Inputs and targets of a window, [T, B] each."""
        rows = slice(index * self.bptt, (index + 1) * self.bptt)
        return self.inputs[rows], self.targets[rows]


def require_window(stream: Ids, minibatch: int, bptt: int) -> None:
    """Raise TextError if the stream does not fill one window of `bptt` rows."""
    needed = minibatch * bptt + 1
    if len(stream) < needed:
        raise TextError(
            f"training text: {needed} tokens expected to fill one window of {minibatch} x {bptt}, "
            f"found {len(stream)}; give more text, or choose a smaller minibatch or BPTT"
        )


def training_columns(stream: Ids, minibatch: int, bptt: int) -> Columns:
    """Exactly `minibatch` columns."""
    return _columns(stream, minibatch, bptt)


def evaluation_columns(stream: Ids, minibatch: int, bptt: int) -> Columns:
    """Up to `minibatch` columns, fewer where they would be shorter than a window: a short text keeps its context.

    Raises TextError for a stream below 2 tokens, which has nothing to predict.
    """
    if len(stream) < 2:
        raise TextError(f"validation text: at least 2 tokens expected, found {len(stream)}; give more text")
    return _columns(stream, max(1, min(minibatch, (len(stream) - 1) // bptt)), bptt)


def _columns(stream: Ids, columns: int, bptt: int) -> Columns:
    rows = (len(stream) - 1) // columns
    cells = rows * columns
    return Columns(stream[:cells].reshape(columns, rows).T, stream[1 : cells + 1].reshape(columns, rows).T, bptt)
