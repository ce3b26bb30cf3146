"""An audit of a simulated training in one run (Steinke, Nasr and Jagielski 2023).

Canary users are enrolled beside the others, each with a message of random words that it repeats. A coin for each says
whether it may take part in rounds; one that may not is enrolled too, so that the number of phones tells nothing of the
coins. The auditor scores each canary by how much likelier the last model makes its message than the first one, and
guesses the coins of the highest and the lowest scores.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta
from msgspec.structs import replace

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.settings import Settings
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.simulation.attacks import membership
from phonograd.simulation.attacks.bound import epsilon_at_least
from phonograd.simulation.attacks.canaries import spoken_words
from phonograd.simulation.records import AuditRecord
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Progress, Simulation, Texts
from phonograd.simulation.users import Messages, least_tokens
from phonograd.simulation.workers import start_workers

Canaries = Annotated[int, Meta(ge=1, le=100_000)]
Guesses = Annotated[int, Meta(ge=0, le=100_000)]


class AuditSettings(Settings, frozen=True):
    """An audit: its canaries, and which coins are guessed. Raises ValueError for a setting out of range."""

    canaries: Annotated[Canaries, about("Users to enrol, each of whom may take part with chance 1/2.")] = 100
    guess_in: Annotated[Guesses, about("Canaries with the highest scores, guessed to have taken part.")] = 25
    guess_out: Annotated[Guesses, about("Canaries with the lowest scores, guessed not to have taken part.")] = 25
    words: Annotated[Canaries, about("Words of a canary's message, drawn from the vocabulary.")] = 8
    at_delta: Annotated[
        float | None,
        Meta(ge=0, lt=1),
        about("Delta of the bound; a private strategy's own.  [default: the strategy's]"),
    ] = None
    confidence: Annotated[float, Meta(gt=0, lt=1), about("Confidence of the bound.")] = 0.95

    def check_together(self) -> None:
        """Raise ValueError for no guesses, or more than canaries."""
        if not 1 <= self.guesses <= self.canaries:
            raise ValueError(
                f"`guess_in` and `guess_out` are {self.guess_in} and {self.guess_out}, expected at least 1 together, "
                f"and at most `canaries` ({self.canaries})"
            )

    @property
    def guesses(self) -> int:
        """How many coins are guessed."""
        return self.guess_in + self.guess_out


def coins_of(canaries: int, seed: int) -> list[bool]:
    """Draw for each canary whether it may take part, with chance 1/2."""
    random = SplitMix64(stream_of(seed, "coins of canaries"))
    return [random.below(2) == 1 for _ in range(canaries)]


def messages_of(settings: AuditSettings, vocabulary: Vocabulary, seed: int) -> list[bytes]:
    """A message of random words for each canary. Raises UsageError if the vocabulary has none."""
    usable = [vocabulary.words[word] for word in spoken_words(vocabulary)]
    if not usable:
        raise UsageError("canaries: a vocabulary with a word or more expected, found none")
    random = SplitMix64(stream_of(seed, "words of canaries"))
    return [
        b" ".join(usable[random.below(len(usable))] for _ in range(settings.words)) for _ in range(settings.canaries)
    ]


def right_guesses(scores: npt.NDArray[np.float64], took_part: Sequence[bool], settings: AuditSettings) -> int:
    """How many are right of the guesses that the highest scores took part, and that the lowest did not."""
    order = np.argsort(scores, kind="stable")
    coins = np.array(took_part)[order]
    highest, lowest = coins[len(coins) - settings.guess_in :], coins[: settings.guess_out]
    return int(np.count_nonzero(highest) + np.count_nonzero(~lowest))


def audit(
    artifacts: Artifacts,
    texts: Texts,
    simulation: SimulationSettings,
    settings: AuditSettings,
    folder: Path,
    workers: int,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> AuditRecord:
    """Enrol the canaries, simulate the rounds in `folder`, and guess from the last model who of them took part.

    No user is kept for evaluation. Raises UsageError for masked rounds, for another delta than a private strategy's and
    for a user with a canary's name, and what `Simulation` raises.
    """
    strategy = simulation.strategy
    delta = strategy.delta if settings.at_delta is None else settings.at_delta
    if strategy.private and delta != strategy.delta:
        raise UsageError(f"`at_delta` is {delta:g}, expected `delta` ({strategy.delta:g}), which epsilon is spent at")
    if simulation.masked is not None:
        raise UsageError("audit: rounds that are not masked expected; who is left out would be missing from the noise")
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    messages = messages_of(settings, vocabulary, simulation.seed)
    took_part = coins_of(settings.canaries, simulation.seed)
    names = [f"canary-{number}" for number in range(settings.canaries)]
    least = least_tokens(artifacts.manifest.training, simulation.user_share, texts.rehearsal)
    enrolled = {
        name: repeat(message, simulation.text_bytes, math.ceil(least / (settings.words + 1)))
        for name, message in zip(names, messages, strict=True)
    }
    texts = dataclasses.replace(texts, users=_with(texts.users, enrolled))
    simulation = replace(simulation, test_users=0)
    left_out = frozenset(name for name, may in zip(names, took_part, strict=True) if not may)
    with Simulation(artifacts, texts, simulation, folder, workers, absent=left_out) as rounds:
        epsilon = rounds.run(progress, stop).rounds[-1].epsilon
        models = rounds.model(0), rounds.model(simulation.rounds)
        with start_workers(workers, artifacts, texts.rehearsal, simulation) as phones:
            scores = membership.scores(phones, [[message] for message in messages], *models)
    right = right_guesses(scores, took_part, settings)
    bound = epsilon_at_least(settings.canaries, settings.guesses, right, delta, settings.confidence)
    return AuditRecord(
        rounds=simulation.rounds,
        canaries=settings.canaries,
        took_part=sum(took_part),
        guesses=settings.guesses,
        right=right,
        delta=delta,
        confidence=settings.confidence,
        epsilon_at_least=bound,
        epsilon=epsilon,
    )


def repeat(message: bytes, nbytes: int, times: int) -> Messages:
    """The message, at least so many times and bytes."""
    return [message] * max(times, math.ceil(nbytes / (len(message) + 1)))


def _with(users: Mapping[str, Messages], canaries: Mapping[str, Messages]) -> dict[str, Messages]:
    if taken := users.keys() & canaries.keys():
        raise UsageError(f"users: no user {min(taken)} expected, which a canary is called; rename the user")
    return {**users, **canaries}
