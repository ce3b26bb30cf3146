"""Keystroke savings (paper P, eq. 5): how many characters a keyboard with three suggestions saves its user.

KSS = (N_total - N_typed) / N_total over non-space characters. A word costs the fewest characters after which it is
among the 3 most probable words that begin with them: 0 if it is suggested before any is typed; all of its characters if
it never is, or is not in the vocabulary. FORMAT.md, "Keystroke savings", has the exact rule.
"""

import bisect
import functools
from dataclasses import dataclass, field

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary

SUGGESTIONS = 3
_UTF8_CONTINUATION = range(0x80, 0xC0)


def character_starts(word: bytes) -> list[int]:
    """Byte offsets where characters begin: offset 0, and every byte that does not continue a UTF-8 sequence."""
    return [at for at, byte in enumerate(word) if at == 0 or byte not in _UTF8_CONTINUATION]


@dataclass(frozen=True)
class PrefixIndex:
    """The vocabulary sorted by bytes, so that the words with a prefix are one contiguous range.

    order: ids of all words but `<unk>` and `<eos>`, sorted by their bytes. The ranges of a word are computed when first
    needed.
    """

    order: Ids
    _sorted: list[bytes] = field(repr=False)
    _vocabulary: Vocabulary = field(repr=False)
    _ranges: dict[int, list[tuple[int, int]]] = field(default_factory=dict, repr=False)

    @classmethod
    @functools.lru_cache(maxsize=1)  # one vocabulary scores many texts
    def of(cls, vocabulary: Vocabulary) -> "PrefixIndex":
        """Sort a vocabulary."""
        suggestible = [word for word in range(len(vocabulary)) if word not in (UNK, EOS)]
        order = sorted(suggestible, key=vocabulary.words.__getitem__)
        return cls(np.array(order, np.int64), [vocabulary.words[word] for word in order], vocabulary)

    def ranges(self, word: int) -> list[tuple[int, int]]:
        """Ranges [low, high) in `order` of the prefixes of `word`, from the empty one to all but its last character."""
        if word not in self._ranges:
            spelling = self._vocabulary.words[word]
            self._ranges[word] = [self._range(spelling[:end]) for end in character_starts(spelling)]
        return self._ranges[word]

    def with_prefix(self, prefix: bytes) -> Ids:
        """Ids of the words that begin with `prefix`, by their bytes."""
        low, high = self._range(prefix)
        return self.order[low:high]

    def _range(self, prefix: bytes) -> tuple[int, int]:
        low = bisect.bisect_left(self._sorted, prefix)
        return low, bisect.bisect_left(self._sorted, True, lo=low, key=lambda word: not word.startswith(prefix))

    def keystrokes(self, word: int, scores: Floats) -> int:
        """Characters to type before `word` is suggested, given the scores [V] of all words.

        A word's rank among the words with a prefix is the number of strictly greater scores in the prefix's range.
        """
        own = scores[word]
        reserved = int(scores[UNK] > own) + int(scores[EOS] > own)
        if np.count_nonzero(scores > own) - reserved < SUGGESTIONS:
            return 0
        _, *ranges = self.ranges(word)
        if not ranges:
            return 1
        first, last = ranges[0]  # all longer prefixes' ranges are in that of the first character
        greater = scores[self.order[first:last]] > own
        for characters, (low, high) in enumerate(ranges, 1):
            if np.count_nonzero(greater[low - first : high - first]) < SUGGESTIONS:
                return characters
        return len(ranges) + 1
