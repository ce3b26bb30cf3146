"""Text: tokens, ids, windows, rehearsal, the output sample, and what is measured on it."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.reference.random_words import SplitMix64, inclusion_chances, logarithm, uniform, words_of

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
UNK, EOS, IGNORED = 0, 1, -1
MARKS = {"‘": "'", "’": "'", "“": '"', "”": '"', "…": "...", "–": "-", "—": "-", "\xa0": " "}
TOKEN = re.compile(rb"<unk>|[a-z0-9\x80-\xff]+(?:'[a-z0-9\x80-\xff]+)*|[^\sa-z0-9\x80-\xff]")


def fold(text: bytes) -> bytes:
    """FORMAT.md, "Text", step 1."""
    text = text.lower()
    for mark, plain in MARKS.items():
        text = text.replace(mark.encode(), plain.encode())
    return text


def tokenize(message: bytes) -> list[bytes]:
    """Steps 1 and 2."""
    return TOKEN.findall(fold(message))


def split_messages(data: bytes) -> list[bytes]:
    """The lines that hold a token."""
    return [line for line in data.split(b"\n") if tokenize(line)]


def encode(words: Sequence[bytes], messages: Sequence[bytes]) -> Ids:
    """The ids [N] of messages, each followed by `<eos>`."""
    known = {word: number for number, word in enumerate(words)}
    return np.array([known.get(token, UNK) for one in messages for token in [*tokenize(one), b"<eos>"]], np.int64)


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


def suggest(words: Sequence[bytes], scores: Floats, typed: bytes, count: int = 3) -> list[int]:
    """Ids of the words with the highest scores [V] that begin with `typed`."""
    fitting = [word for word in range(2, len(words)) if words[word].startswith(fold(typed))]
    return sorted(fitting, key=lambda word: (-scores[word], word))[:count]


def keystrokes(words: Sequence[bytes], word: int, scores: Floats) -> int:
    """FORMAT.md, "Keystroke savings"."""
    starts = characters(words[word])
    for typed, start in enumerate(starts):
        rivals = (i for i in range(2, len(words)) if words[i].startswith(words[word][:start]))
        if sum(scores[i] > scores[word] for i in rivals) < 3:
            return typed
    return len(starts)


@dataclass
class Figures:
    """What `phonograd eval` tells of a text."""

    tokens: int
    unknown_tokens: int
    perplexity: float
    perplexity_with_unknown: float
    top1: float
    kss: float


def figures(words: Sequence[bytes], messages: Sequence[bytes], scores: Floats) -> Figures:
    """Of a text whose every token has scores [V] in `scores` [N, V]."""
    spelled = [token for message in messages for token in [*tokenize(message), b""]]
    stream = encode(words, messages)
    exact = scores.astype(np.float64)
    shifted = exact - exact.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(stream)), stream]
    known, typed, total, hits = stream != UNK, 0, 0, 0
    for target, token, row in zip(stream.tolist(), spelled, scores, strict=True):
        length = len(characters(token))
        total += length
        if target != EOS:
            typed += length if target == UNK else keystrokes(words, target, row)
            hits += target != UNK and int(row.argmax()) == target
    return Figures(
        len(stream),
        int((~known).sum()),
        math.exp(losses[known].mean()) if known.any() else 1.0,
        math.exp(losses.mean()),
        hits / max(1, int((stream != EOS).sum())),
        (total - typed) / max(1, total),
    )
