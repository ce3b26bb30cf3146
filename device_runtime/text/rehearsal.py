"""Random rehearsal (paper P): the user's messages mixed with general ones. FORMAT.md, "Rehearsal"."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phonograd.device_runtime.text.tokenizer import ids_at, text_of
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary

# If the vocabulary lacks more of a text's words, no update is made unless a caller says otherwise; as in the library.
MAX_UNKNOWN = 0.5


@dataclass(frozen=True)
class TextShares:
    """Shares of a text to train on.

    user_tokens, general_tokens: number of the user's and of general tokens
    user_unknown_share, general_unknown_share: share of words that the vocabulary lacks; None: no general text
    user_invalid_share: share of the user's bytes that are part of no UTF-8 character
    """

    user_tokens: int
    general_tokens: int = 0
    user_unknown_share: float = 0.0
    general_unknown_share: float | None = None
    user_invalid_share: float = 0.0

    @property
    def user_share(self) -> float:
        """The user's actual share of the tokens, λ in paper P."""
        return self.user_tokens / (self.user_tokens + self.general_tokens)


@dataclass(frozen=True)
class TrainingText(TextShares):
    """Text of one epoch: a stream of ids [N]."""

    stream: Ids = field(kw_only=True)


def mix(
    user: Sequence[bytes], general: Sequence[bytes], user_share: float, vocabulary: Vocabulary, seed: int
) -> TrainingText:
    """The user's messages, shuffled with enough general tokens that the user's share is λ.

    With λ = 1 the user's messages stay in order and `general` is not used. Raises TextError if `general` is too short,
    or for a share outside (0, 1].
    """
    texts = text_of(b"\n".join(user)), text_of(b"\n".join(general))

    def copy_text(stream: Any) -> TrainingText:
        shares = (stream.user_unknown_share, stream.general_unknown_share if stream.general_tokens else None)
        return TrainingText(
            stream.user_tokens,
            stream.general_tokens,
            *shares,
            stream.user_invalid_share,
            stream=ids_at(stream.ids, stream.tokens),
        )

    return vocabulary.tokenizer.call("pg_tokenizer_mix", *texts, user_share, seed & (1 << 64) - 1, result=copy_text)


def unknown_share(ids: Ids) -> float:
    """The share of `<unk>` among the words (tokens but `<eos>`) of encoded messages; 0 if there are no words."""
    words = np.count_nonzero(ids != EOS)
    return float(np.count_nonzero(ids == UNK) / words) if words else 0.0
