"""The user's own words in plain Python (FORMAT.md, "Personal words"), but for the bounds of a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.reference.tokens import fold, tokenize

WHOLE = 1 << 20
END = b"\n"  # a message's end, in contexts and among followers


@dataclass
class Personal:
    """counts: by word, in the order in which they were learned; followers: by words before, the last one first."""

    counts: dict[bytes, int] = field(default_factory=dict)
    followers: dict[tuple[bytes, ...], dict[bytes, int]] = field(default_factory=dict)
    waiting: dict[bytes, int] = field(default_factory=dict)
    weights: list[list[int]] = field(default_factory=lambda: [[3 * WHOLE, 10 * WHOLE] for _ in range(3)])
    vetoed: set[bytes] = field(default_factory=set)
    before: tuple[bytes, bytes] = (END, END)
    middle: bool = False  # of a sentence: after a word; marks are ! and @
    guarded: set[bytes] = field(default_factory=set)  # in this message
    plain: dict[bytes, int] = field(default_factory=dict)  # times a word followed another or a comma in its sentence

    def predict(self) -> tuple[int, dict[bytes, float]]:
        """Words of the context that were seen, and each word's probability after it, as the user writes."""
        total = sum(self.counts.values())
        if total == 0:
            return -1, {}
        next_ = {word: count / total for word, count in self.counts.items()}
        seen = 0
        while seen < 2 and (after := self.followers.get(self.before[: seen + 1])):
            every = float(sum(after.values()))
            next_ = {word: share * (0.5 * len(after) / every) for word, share in next_.items()}
            for word, count in after.items():
                if word != END:
                    next_[word] += (count - 0.5) / every
            seen += 1
        return seen, next_

    def weight(self, seen: int) -> float:
        return self.weights[seen][0] / self.weights[seen][1] if seen >= 0 else 0.0

    def mix(self, model: Mapping[bytes, float]) -> dict[bytes, float]:
        """Each word's probability; model: those of the vocabulary, without <unk> and <eos>."""
        seen, next_ = self.predict()
        weight = self.weight(seen)
        mixed = {word: (1 - weight) * share for word, share in model.items()}
        return mixed | {word: weight * share + mixed.get(word, 0.0) for word, share in next_.items()}

    def learn(self, word: bytes, guarded: bool, model: Mapping[bytes, float]) -> None:
        """A word was written; model: the vocabulary's probabilities at this place."""
        seen, next_ = self.predict()
        weight = self.weight(seen)
        own, other = weight * next_.get(word, 0.0), (1 - weight) * model.get(word, 0.0)
        if seen >= 0 and own + other > 0:
            pair = self.weights[seen]
            pair[:] = [pair[0] + int(own / (own + other) * WHOLE), pair[1] + WHOLE]
            if pair[1] > 500 * WHOLE:
                pair[:] = [pair[0] // 2, pair[1] // 2]
        if word not in self.vetoed and word != b"<unk>" and len(word) <= 64:
            if word not in self.counts and guarded and word in self.guarded:
                pass  # once a message
            elif word not in self.counts and guarded and self.waiting.get(word, 0) < 2:
                self.waiting[word] = self.waiting.get(word, 0) + 1
            else:
                self.counts[word] = self.counts.get(word, 0) + 1 + self.waiting.pop(word, 0)
                if self.middle:
                    self.plain[word] = self.plain.get(word, 0) + 1
                self.count(word)
        self.guarded |= {word} if guarded else set()
        self.middle = word not in (b"!", b"@")
        self.before = (word, self.before[0])

    def end(self) -> None:
        """A message ended."""
        self.count(END)
        self.before = (END, END)
        self.guarded.clear()
        self.middle = False

    def count(self, word: bytes) -> None:
        for length in (1, 2):
            context = self.before[:length]
            if any(one != END and one not in self.counts for one in context):
                return
            after = self.followers.setdefault(context, {})
            after[word] = after.get(word, 0) + 1

    def delete(self, word: bytes) -> None:
        """Delete a word and what followed it."""
        self.counts.pop(word, None)
        self.waiting.pop(word, None)
        for context, after in list(self.followers.items()):
            after.pop(word, None)
            if word in context or not after:
                del self.followers[context]


def pieces(message: bytes) -> list[tuple[list[bytes], bool]]:
    """What stands between spaces: its tokens, and whether it is guarded."""
    parts = [part.encode("utf-8", "surrogateescape") for part in fold(message).split()]
    return [(tokenize(part), any(byte in b"@0123456789" for byte in part)) for part in parts]
