"""Random rehearsal (paper P): the user's messages mixed with general ones. FORMAT.md, "Rehearsal".

The rules include the random generator, so that Python and the phone's engine train on the same stream.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.random_words import SplitMix64
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary

# Of whose words the vocabulary lacks more, no update is made unless a caller says otherwise; the phone's engine too.
MAX_UNKNOWN = 0.5
MAX_TOKENS = 2.0**62  # more than any text has; a tiny share may ask for more than an integer holds


@dataclass(frozen=True)
class TrainingText:
    """What one epoch trains on: the stream of ids [N], the number of the user's and of general tokens in it, and for
    both the share of words that the vocabulary does not have (None: no general text); and the share of the user's bytes
    that are part of no UTF-8 character.
    """

    stream: Ids
    user_tokens: int
    general_tokens: int
    user_unknown_share: float = 0.0
    general_unknown_share: float | None = None
    user_invalid_share: float = 0.0

    @property
    def user_share(self) -> float:
        """The user's actual share of the tokens, λ in paper P."""
        return self.user_tokens / (self.user_tokens + self.general_tokens)


def mix(
    user: Sequence[bytes], general: Sequence[bytes], user_share: float, vocabulary: Vocabulary, seed: int
) -> TrainingText:
    """The user's messages, shuffled with enough general tokens that the user's share is λ.

    With λ = 1 the user's messages stay in order and `general` is not used. Raises TextError if `general` is too short.
    """
    if not 0 < user_share <= 1:
        raise TextError(f"user share {user_share}: expected a number in (0, 1]")
    messages = [vocabulary.encode([message]) for message in user]
    user_tokens = sum(map(len, messages))
    wanted = round(min(user_tokens * (1 - user_share) / user_share, MAX_TOKENS))
    if wanted == 0:
        return TrainingText(
            np.concatenate(messages), user_tokens, 0, unknown_share(messages), user_invalid_share=invalid_share(user)
        )
    random = SplitMix64(seed)
    drawn = _draw(general, wanted, vocabulary, random)
    shares = unknown_share(messages), unknown_share(drawn)
    messages += drawn
    random.shuffle(messages)
    return TrainingText(np.concatenate(messages), user_tokens, wanted, *shares, invalid_share(user))


def require_known(text: TrainingText, name: str, max_unknown: float) -> None:
    """Raise TextError if the vocabulary lacks more of the words of the user's text, called `name`, than this share: an
    update of it would teach the model `<unk>`.
    """
    if text.user_unknown_share > max_unknown:
        raise TextError(
            f"{name}: {100 * text.user_unknown_share:.3g} % of the words are unknown to the vocabulary, at most "
            f"{100 * max_unknown:.3g} % expected of an update; give UTF-8 text in the model's language, or raise "
            "`max_unknown`"
        )


def invalid_share(messages: Sequence[bytes]) -> float:
    """The share of messages' bytes that are part of no UTF-8 character; 0 if there are no bytes."""
    total = sum(map(len, messages))
    valid = sum(len(message.decode(errors="ignore").encode()) for message in messages)
    return (total - valid) / total if total else 0.0


def unknown_share(messages: Sequence[Ids]) -> float:
    """The share of `<unk>` among the words (tokens but `<eos>`) of encoded messages; 0 if there are no words."""
    ids = np.concatenate(messages)
    words = np.count_nonzero(ids != EOS)
    return float(np.count_nonzero(ids == UNK) / words) if words else 0.0


def _draw(general: Sequence[bytes], wanted: int, vocabulary: Vocabulary, random: SplitMix64) -> list[Ids]:
    """Random messages without repetition, `wanted` tokens in all; the last is cut to fit, ending in <eos>."""
    order = list(range(len(general)))
    drawn: list[Ids] = []
    missing = wanted
    for place in range(len(order)):
        other = place + random.below(len(order) - place)
        order[place], order[other] = order[other], order[place]
        ids = vocabulary.encode([general[order[place]]])
        if len(ids) >= missing:
            drawn.append(np.append(ids[: missing - 1], EOS))
            return drawn
        drawn.append(ids)
        missing -= len(ids)
    raise TextError(
        f"rehearsal text: {wanted} tokens needed, found {wanted - missing}; give a longer one or a larger `user_share`"
    )
