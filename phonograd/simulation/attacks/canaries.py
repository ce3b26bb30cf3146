"""Canaries: secrets of one form, each in one user's text, and what a model that trained on them knows of them.

Training also changes what the model makes of sentences that nobody wrote. So some secrets are controls: drawn and
measured like the others, and in no text. What counts is how much more the exposure of a written secret changed.

A secret is "my secret is A B C" with words A, B, C of a list, so that all that there can be are ranked, not a sample.
Its exposure (Carlini et al. 2019, The Secret Sharer) is by its rank and by extrapolation. Both compare the secret's
loss, -log2 P in bits, with those of all others of its form. A rank gives at most log2 of their number; the
extrapolation, a skew-normal distribution fitted to the losses, has no such limit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.settings import FromZero, Settings
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.text.evaluation import Scorer
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.sampling import Doubles, batches, log_chances
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary
from phonograd.simulation.attacks.membership import estimate
from phonograd.simulation.records import Canaries, Exposure, ExposureChange
from phonograd.simulation.users import Messages, text_slice

# The largest skewness of a skew-normal distribution is 0.9953.
MOST_SKEWED = 0.99
_REACH, _POINTS = 12, 20_001  # of the integral below a loss: standard widths, and points


def rank_of(losses: Doubles, loss: float) -> int:
    """1 and the number of losses, which rise, below that one."""
    return 1 + int(np.searchsorted(losses, loss))


def exposure_of(rank: int, space: int) -> float:
    """log2 |R| - log2 rank."""
    return math.log2(space) - math.log2(rank)


@dataclass(frozen=True)
class SkewNormal:
    """Density 2/w φ(z) Φ(a z), z = (x - location) / w, for width w and shape a."""

    location: float
    width: float
    shape: float

    @classmethod
    def fit(cls, values: Doubles) -> "SkewNormal":
        """Fit the values' mean, standard deviation and skewness; values that are all alike have width 0."""
        mean, deviation = float(values.mean()), float(values.std())
        if deviation == 0:
            return cls(mean, 0, 0)
        skewness = float((((values - mean) / deviation) ** 3).mean())
        size = min(abs(skewness), MOST_SKEWED) ** (2 / 3)
        delta = math.copysign(math.sqrt(math.pi / 2 * size / (size + (2 - math.pi / 2) ** (2 / 3))), skewness)
        width = deviation / math.sqrt(1 - 2 * delta**2 / math.pi)
        return cls(mean - width * delta * math.sqrt(2 / math.pi), width, delta / math.sqrt(1 - delta**2))

    def log2_below(self, x: float) -> float:
        """log2 of the chance of a value of at most x. It is computed from logarithms, so that no x is too small."""
        if self.width == 0:
            return 0.0 if x >= self.location else -math.inf
        z = (x - self.location) / self.width
        points, step = np.linspace(min(z, 0) - _REACH, min(z, _REACH), _POINTS, retstep=True)
        logs = math.log(2 / math.sqrt(2 * math.pi)) - points**2 / 2 + _log_normal_below(self.shape * points)
        highest = logs.max()
        densities = np.exp(logs - highest)
        integral = step * (densities.sum() - (densities[0] + densities[-1]) / 2)
        return min(0.0, float(highest + math.log(integral)) / math.log(2))


def _log_normal_below(z: Doubles) -> Doubles:
    """log Φ(z); far below 0 by its asymptotic series."""
    far = np.minimum(z, -30)
    series = -(far**2) / 2 - np.log(-far * math.sqrt(2 * math.pi)) + np.log1p(-(far**-2.0))
    near = np.array([math.log(math.erfc(-max(value, -30) / math.sqrt(2)) / 2) for value in z.tolist()])
    return np.where(z < -30, series, near)


Some = Annotated[int, Meta(ge=1, le=1000)]


class CanarySettings(Settings, frozen=True):
    """Secrets to plant. Raises ValueError for a setting out of range, naming it."""

    insertions: Annotated[
        tuple[FromZero, ...], about("How often a secret is in its user's text, for each kind of secret; 0: controls.")
    ] = (0, 1, 4, 16)
    each: Annotated[Some, about("Secrets for each number of insertions, each of another user.")] = 3
    controls: Annotated[Some, about("Secrets that nobody wrote, if 0 is among the insertions.")] = 50
    words: Annotated[int, Meta(ge=2, le=256), about("Words that secrets are made of, drawn from the vocabulary.")] = 64
    form: Annotated[str, about("What the message of a secret begins with.")] = "my secret is"

    def check_together(self) -> None:
        """Raise ValueError for no kind of secret, a form without a word, and more secrets than there can be."""
        self.require("insertions", bool(self.insertions), "one number or more")
        self.require("form", bool(self.form.split()), "a word or more")
        self.require(
            "words", len(self.drawn) < self.words**3, f"more, as its cube must exceed {len(self.drawn)} secrets"
        )

    @property
    def drawn(self) -> list[int]:
        """The insertions of each secret, controls last."""
        written = [number for number in self.insertions if number for _ in range(self.each)]
        return written + [0] * (self.controls if 0 in self.insertions else 0)


def spoken_words(vocabulary: Vocabulary) -> list[int]:
    """The ids of words that a message can have."""
    return [
        word
        for word, spelling in enumerate(vocabulary.words)
        if word not in (UNK, EOS) and tokenize(spelling) == [spelling]
    ]


@dataclass(frozen=True)
class Secrets:
    """All secrets of a form: the ids of what comes before, [P], and of the list of words, [W]; there are W^3."""

    before: Ids
    words: Ids

    @classmethod
    def of(cls, settings: CanarySettings, vocabulary: Vocabulary, seed: int) -> "Secrets":
        """The list is drawn from the vocabulary's words that a message can have. Raises UsageError for too few."""
        *before, _ = vocabulary.encode([settings.form.encode()])
        usable = spoken_words(vocabulary)
        if len(usable) < settings.words:
            raise UsageError(f"words: {settings.words} expected in the vocabulary, found {len(usable)}")
        SplitMix64(stream_of(seed, "words of secrets")).shuffle(usable)
        return cls(np.array(before, np.int64), np.array(usable[: settings.words], np.int64))

    def losses(self, model: Scorer, vocabulary: int) -> Doubles:
        """-log2 P in bits of every secret after its form, [W, W, W]."""
        W, start = len(self.words), len(self.before)
        first, second = (part.reshape(-1) for part in np.meshgrid(self.words, self.words, indexing="ij"))
        told = np.broadcast_to(np.concatenate(([EOS], self.before))[:, None], (start + 1, W * W))
        tokens = np.vstack((told, first, second))
        pairs, thirds = np.empty(W * W), np.empty((W * W, W))
        for columns in batches(W * W, 4 * vocabulary * len(tokens)):
            model.reset()
            scores = model.logits(tokens[:, columns]).reshape(len(tokens), -1, vocabulary)
            pairs[columns] = log_chances(scores[-3], first[columns, None])[:, 0]
            pairs[columns] += log_chances(scores[-2], second[columns, None])[:, 0]
            thirds[columns] = log_chances(scores[-1], np.broadcast_to(self.words, (scores.shape[1], W)))
        losses: Doubles = -(pairs[:, None] + thirds).reshape(W, W, W) / np.log(2)
        return losses


@dataclass(frozen=True)
class Canary:
    """A user's secret: places of its words in the list, and how often it is in the user's text. A control has none."""

    user: str | None
    insertions: int
    secret: tuple[int, int, int]


@dataclass(frozen=True)
class Plan:
    """Who has which secret, and all users' texts with them."""

    secrets: Secrets
    canaries: tuple[Canary, ...]
    users: dict[str, Messages]


def plan(
    settings: CanarySettings,
    users: Mapping[str, Messages],
    members: Sequence[str],
    vocabulary: Vocabulary,
    text_bytes: int,
    seed: int,
) -> Plan:
    """Draw controls, and give secrets to some of the `members`, the users who take part in rounds.

    Raises UsageError if these are too few, or `text_bytes` too small.
    """
    secrets = Secrets.of(settings, vocabulary, seed)
    canaries = tuple(_draw_canaries(settings, members, seed))
    texts = dict(users)
    for canary in canaries:
        if canary.user is None:
            continue
        words = [vocabulary.words[secrets.words[place]] for place in canary.secret]
        message = b" ".join((settings.form.encode(), *words))
        places = stream_of(seed, f"places of {canary.user}'s secret")
        texts[canary.user] = plant(users[canary.user], message, canary.insertions, text_bytes, places)
    return Plan(secrets, canaries, texts)


def _draw_canaries(settings: CanarySettings, members: Sequence[str], seed: int) -> Iterator[Canary]:
    written = sum(number > 0 for number in settings.drawn)
    if len(members) < written:
        raise UsageError(
            f"canaries: {written} users who take part expected, found {len(members)}; simulate more `rounds`"
        )
    random = SplitMix64(stream_of(seed, "secrets"))
    names = sorted(members)
    random.shuffle(names)
    known: set[tuple[int, int, int]] = set()
    for place, number in enumerate(settings.drawn):
        secret = _secret(settings.words, random)
        while secret in known:
            secret = _secret(settings.words, random)
        known.add(secret)
        yield Canary(names[place] if number else None, number, secret)


def _secret(words: int, random: SplitMix64) -> tuple[int, int, int]:
    return random.below(words), random.below(words), random.below(words)


def plant(messages: Messages, message: bytes, insertions: int, text_bytes: int, seed: int) -> Messages:
    """A user's messages with one more, `insertions` times at random places of the `text_bytes` that it trains on first.

    Raises UsageError if it does not fit in half of them.
    """
    nbytes = insertions * (len(message) + 1)
    if nbytes > text_bytes // 2:
        raise UsageError(f"insertions: at most {text_bytes // 2} bytes expected, half of `text_bytes`, found {nbytes}")
    first, _ = text_slice(messages, text_bytes - nbytes, 0)
    random = SplitMix64(seed)
    # Before the last of these messages: the phone's text ends with it or a later one.
    places = [random.below(len(first)) for _ in range(insertions)]
    mixed: Messages = []
    for place, own in enumerate(first):
        mixed += [message] * places.count(place)
        mixed.append(own)
    return mixed + messages[len(first) :]


def measure(artifacts: Artifacts, plan: Plan, first: Path, last: Path, threads: int, seed: int) -> Canaries:
    """The exposure of each secret under the last model, among all that nobody has, and under the first one."""
    canaries = plan.canaries
    before, after = (_losses(artifacts, plan.secrets, weights, threads) for weights in (first, last))
    nobody_has = np.ones(after.shape, bool)
    for canary in canaries:
        nobody_has[canary.secret] = canary.user is None
    space = after.size
    others_before, others = (np.sort(losses[nobody_has]) for losses in (before, after))
    fitted = SkewNormal.fit(others)
    exposures = []
    for canary in canaries:
        rank, rank_before = rank_of(others, after[canary.secret]), rank_of(others_before, before[canary.secret])
        beyond = max(0.0, -fitted.log2_below(float(after[canary.secret])))
        exposures.append(
            Exposure(
                canary.user, canary.insertions, rank, exposure_of(rank, space), beyond, exposure_of(rank_before, space)
            )
        )
    return Canaries(space, tuple(exposures), tuple(changes_of(exposures, seed)))


def changes_of(secrets: Sequence[Exposure], seed: int) -> Iterator[ExposureChange]:
    """How the exposure changed by number of insertions, and how much more than the controls'."""
    kinds = {number: [one for one in secrets if one.insertions == number] for number in {s.insertions for s in secrets}}
    changes = {number: np.array([one.change for one in kinds[number]]) for number in sorted(kinds)}
    for number, change in changes.items():
        yield ExposureChange(
            number,
            len(change),
            fmean(one.before for one in kinds[number]),
            fmean(one.exposure for one in kinds[number]),
            float(change.mean()),
            float(change.std(ddof=1)) / math.sqrt(len(change)) if len(change) > 1 else None,
            estimate(_difference, change, changes[0], seed) if number and 0 in changes else None,
        )


def _difference(ours: Doubles, controls: Doubles) -> float:
    return float(ours.mean() - controls.mean())


def _losses(artifacts: Artifacts, secrets: Secrets, weights: Path, threads: int) -> Doubles:
    options = BackendOptions(threads=threads)
    with NativeBackend(artifacts, weights, options) as model:
        return secrets.losses(model, artifacts.manifest.model.vocabulary)
