"""Text: tokens, ids, windows, rehearsal, the output sample, and what is measured on it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.reference.random_words import SplitMix64, inclusion_chances, logarithm, uniform, words_of
from tests.reference.tokens import FindWords, fold, graphemes, has, tokenize
from tests.reference.unicode import UNSPACED

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
UNK, EOS, IGNORED = 0, 1, -1


def _logarithm(number: int) -> int:
    """The binary logarithm in 2^-10, rounded down."""
    result = number.bit_length() - 1
    mantissa = number >> (result - 31) if result > 31 else number << (31 - result)
    for _ in range(10):
        mantissa = mantissa * mantissa >> 31
        result, mantissa = result << 1 | mantissa >> 32, mantissa >> (mantissa >> 32)
    return result


def word_path(words: Sequence[bytes], counts: Sequence[int]) -> FindWords:
    """FORMAT.md, "Text", step 3."""
    spelled = [word.decode("utf-8", "surrogateescape") for word in words]
    known = {word: count for word, count in zip(spelled, counts, strict=True) if has(word[:1], UNSPACED)}
    whole = _logarithm(sum(count + 1 for count in known.values())) if known else 0

    def find(run: str) -> list[str]:
        parts = graphemes(run)
        best: list[tuple[int, list[str]]] = [(0, [])]
        for end in range(1, len(parts) + 1):
            cost, found = best[end - 1]
            choice = (cost + whole + (8 << 10), [*found, parts[end - 1]])
            for start in reversed(range(end)):
                word = "".join(parts[start:end])
                if word in known and (total := best[start][0] + whole - _logarithm(known[word] + 1)) <= choice[0]:
                    choice = (total, [*best[start][1], word])
            best.append(choice)
        return best[-1][1]

    return find if known else graphemes


def split_messages(data: bytes) -> list[bytes]:
    """The lines that hold a token."""
    return [line for line in data.split(b"\n") if tokenize(line)]


def zipf_counts(words: int) -> list[int]:
    """Counts where a vocabulary has none. FORMAT.md, "Vocabulary"."""
    return [round(1e6 / (id + 1)) for id in range(words)]


def encode(words: Sequence[bytes], messages: Sequence[bytes]) -> Ids:
    """The ids [N] of messages, each followed by `<eos>`."""
    known = {word: number for number, word in enumerate(words)}
    find = word_path(words, zipf_counts(len(words)))
    return np.array([known.get(token, UNK) for one in messages for token in [*tokenize(one, find), b"<eos>"]], np.int64)


def windows(stream: Ids, minibatch: int, bptt: int) -> Iterator[tuple[Ids, Ids]]:
    """Tokens and targets [T, B] of each window. FORMAT.md, "Windows"."""
    height = -(-len(stream) // minibatch)
    for start in range(0, height, bptt):
        tokens, targets = np.full((2, bptt, minibatch), EOS)
        targets[:] = IGNORED
        for row in range(start, min(start + bptt, height)):
            for column in range(minibatch):
                place = column * height + row
                if place < len(stream):
                    targets[row - start, column] = stream[place]
                    tokens[row - start, column] = stream[place - 1] if place else EOS
        yield tokens, targets


def mix(
    words: Sequence[bytes], user: Sequence[bytes], general: Sequence[bytes], user_share: float, seed: int
) -> tuple[Ids, int, int]:
    """The stream, and the user's and general tokens in it. FORMAT.md, "Rehearsal"."""
    own = [encode(words, [message]) for message in user]
    tokens = sum(map(len, own))
    wanted = round(tokens * (1 - user_share) / user_share)
    if wanted == 0:
        return np.concatenate(own), tokens, 0
    random, order, missing = SplitMix64(seed), list(range(len(general))), wanted
    for place in range(len(order)):
        other = place + random.below(len(order) - place)
        order[place], order[other] = order[other], order[place]
        drawn = encode(words, [general[order[place]]])
        own.append(drawn if len(drawn) < missing else np.append(drawn[: missing - 1], EOS))
        missing -= len(own[-1])
        if missing == 0:
            break
    for last in range(len(own) - 1, 0, -1):
        other = random.below(last + 1)
        own[last], own[other] = own[other], own[last]
    return np.concatenate(own), tokens, wanted


def output_sample(stream: Ids, counts: Ids, drawn: int, seed: int) -> tuple[Ids, Floats]:
    """Candidates and shifts. FORMAT.md, "Output sample"."""
    own = {UNK, EOS, *stream.tolist()}
    others = [word for word in range(len(counts)) if word not in own]
    chance = dict.fromkeys(own, 1.0)
    chance |= zip(others, inclusion_chances([math.sqrt(counts[word] + 0.5) for word in others], drawn), strict=True)
    numbers = words_of(seed, "output-sample", len(counts))
    chosen = [word for word in range(len(counts)) if uniform(numbers[word]) < min(1.0, chance[word])]
    shifts = [0.0 - logarithm(min(1.0, chance[word])) for word in chosen]
    return np.array(chosen, np.int64), np.array(shifts).astype(np.float32)


def characters(word: bytes) -> list[int]:
    """The offsets of a word's characters."""
    return [at for at, byte in enumerate(word) if at == 0 or not 0x80 <= byte < 0xC0]


def is_mark(word: bytes) -> bool:
    return not word.decode("utf-8", "replace")[0].isalnum()


def suggest(words: Sequence[bytes], scores: Floats, typed: bytes, count: int = 3, marks: bool = True) -> list[int]:
    """Ids of the words with the highest scores [V] that begin with `typed`."""
    begin = fold(typed).encode("utf-8", "surrogateescape")
    fitting = [
        word for word in range(2, len(words)) if words[word].startswith(begin) and (marks or not is_mark(words[word]))
    ]
    return sorted(fitting, key=lambda word: (-scores[word], word))[:count]


def keystrokes(words: Sequence[bytes], word: int, scores: Floats, marks: bool = True) -> int:
    """FORMAT.md, "Keystroke savings"."""
    starts = characters(words[word])
    for typed, start in enumerate(starts):
        if word in suggest(words, scores, words[word][:start], marks=marks):
            return typed
    return len(starts)


@dataclass
class Figures:
    """What `phonograd eval` tells of a text."""

    tokens: int
    unknown_tokens: int
    words: int
    characters: int
    perplexity: float
    perplexity_error: float
    perplexity_with_unknown: float
    perplexity_with_unknown_error: float
    top1: float
    top1_error: float
    top1_with_unknown: float
    top1_with_unknown_error: float
    kss: float
    kss_error: float
    kss_without_marks: float
    kss_without_marks_error: float


def ratio(above: Floats | Ids, below: Floats | Ids, starts: Ids) -> tuple[float, float]:
    """Ratio of sums over targets, and its error by messages, which begin at `starts`. FORMAT.md, "Standard errors"."""
    x, n = (np.add.reduceat(one.astype(np.float64), starts) for one in (above, below))
    m, R = len(starts), x.sum() / n.sum()
    return R, math.sqrt(m / (m - 1) * ((x - R * n) ** 2).sum()) / n.sum() if m > 1 else 0.0


def figures(words: Sequence[bytes], messages: Sequence[bytes], scores: Floats) -> Figures:
    """Figures of a text whose every token has scores [V] in `scores` [N, V]."""
    spelled = [token for message in messages for token in [*tokenize(message), b""]]
    stream = encode(words, messages)
    exact = scores.astype(np.float64)
    shifted = exact - exact.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(stream)), stream]
    spoken, known, ids = stream != EOS, stream != UNK, stream.tolist()
    length = np.array([len(characters(token)) for token in spelled])
    rows = list(zip(ids, scores, length, strict=True))
    typed = [[keystrokes(words, id, row, marks) if id > EOS else n for id, row, n in rows] for marks in (True, False)]
    first, best = (start + scores[:, start:].argmax(axis=1) == stream for start in (2, 0))
    starts = np.flatnonzero(np.append(True, ~spoken[:-1]))
    nats = [ratio(losses * known, known, starts), ratio(losses, np.ones(len(stream)), starts)]
    perplexities = [(math.exp(mean), math.exp(mean) * error) for mean, error in nats]
    hits = [ratio(hit & spoken & known, spoken, starts) for hit in (first, best)]
    kss = [ratio(length - one, length, starts) for one in typed]
    counts = len(stream), int((~known).sum()), int(spoken.sum()), int(length.sum())
    return Figures(*counts, *(figure for pair in (*perplexities, *hits, *kss) for figure in pair))
