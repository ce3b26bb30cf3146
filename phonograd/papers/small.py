"""Small inputs: texts on two topics and a small model that knows one of them, made in seconds, always the same.

General text and users' text have the same words, but each word is followed by others: a model that learns one topic
alone forgets the other, as a phone's does.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

import phonograd

WORDS = tuple(a + b + c for a in ("ba", "do", "ki", "lu") for b in ("ma", "ne", "ri", "so") for c in ("", "n", "sha"))
MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=len(WORDS) + 2, embedding=32, hidden=32, layers=1)
TRAINING = phonograd.TrainingConfig(minibatch=5, bptt=8)
USERS = 14
MANY = 40  # of whom some are of each part, by their names
_MESSAGE = 7  # words
_FAITHFUL = 0.85  # how often a word is followed by its successor


def message(random: Random, topic: int) -> str:
    """A message on a topic, of which each gives every word another successor."""
    word = random.randrange(len(WORDS))
    chosen = [word]
    while len(chosen) < _MESSAGE:
        follows = (word * 5 + 7 + 11 * topic) % len(WORDS)
        word = follows if random.random() < _FAITHFUL else random.randrange(len(WORDS))
        chosen.append(word)
    return " ".join(WORDS[place] for place in chosen)


def general_text(seed: int, messages: int) -> list[str]:
    """Messages on topic 0."""
    random = Random(seed)
    return [message(random, 0) for _ in range(messages)]


def user_texts(seed: int, users: int = USERS, messages: int = 120) -> dict[str, list[str]]:
    """Messages by user: most on topic 1, which all users share, some on general topics."""
    random = Random(seed)
    return {
        f"user-{user:02}": [message(random, random.choices((1, 0), (4, 1))[0]) for _ in range(messages)]
        for user in range(users)
    }


class SmallInputs:
    """The inputs of small runs, each made in `folder` when it is first asked for."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._makers: Mapping[str, Callable[[], Path]] = {
            "artifacts": lambda: self._artifacts.folder,
            "artifacts-part": lambda: self._trains("part", train=["decoder"]),
            "artifacts-adapters": lambda: self._trains("adapters", adapters=4),
            "users": lambda: self._users(USERS),
            **dict.fromkeys(("sms", "chat", "blogs"), lambda: self._users(MANY)),
            "2x650": lambda: self._artifacts.folder,
            "rehearsal": lambda: self._text("rehearsal.txt", general_text(1, 1500)),
            "general-test": lambda: self._text("general-test.txt", general_text(2, 60)),
            "training-text": lambda: self._text("training-text.txt", general_text(1, 400)),
            "validation-text": lambda: self._text("validation-text.txt", general_text(5, 60)),
            "test-text": lambda: self._text("test-text.txt", general_text(2, 60)),
        }

    def path(self, name: str) -> Path | None:
        """The input of that name; None for one that small runs don't have."""
        return self._makers[name]() if name in self._makers else None

    @cached_property
    def _artifacts(self) -> phonograd.Artifacts:
        first = self._folder / "first"
        trained = self._folder / "trained.safetensors"
        vocabulary = self._text("vocab.txt", ["<unk>", "<eos>", *WORDS])  # with Zipf's counts, as all words are
        if not (self._folder / "artifacts" / "manifest.json").exists():
            weights = phonograd.seeded_weights(MODEL, 1)
            phonograd.export_artifacts(weights, vocabulary, first, training=TRAINING, shape=MODEL, overwrite=True)
            one_thread = phonograd.BackendOptions(threads=1)  # several would wait for each other on a busy machine
            settings = phonograd.TrainSettings(epochs=3, seed=1, options=one_thread)
            phonograd.train(first, general_text(3, 1500), settings, out=trained)
            phonograd.export_artifacts(trained, vocabulary, self._folder / "artifacts", training=TRAINING, distill=True)
        return phonograd.open_artifacts(self._folder / "artifacts")

    def _trains(self, name: str, **what: Any) -> Path:
        out, first = self._folder / name, self._artifacts
        rate = replace(TRAINING, learning_rate=2 * TRAINING.learning_rate)
        vocabulary, weights = first.path("vocab.txt"), first.path("weights.safetensors")
        phonograd.export_artifacts(weights, vocabulary, out, training=rate, overwrite=True, **what)
        return out

    def _users(self, count: int) -> Path:
        lines = [
            msgspec.json.encode({"user": user, "text": "\n".join(messages)}).decode()
            for user, messages in user_texts(4, count).items()
        ]
        return self._text(f"{count}-users.jsonl", lines)

    def _text(self, name: str, lines: list[str]) -> Path:
        self._folder.mkdir(exist_ok=True)
        path = self._folder / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path
