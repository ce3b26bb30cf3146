"""Runs phonograd commands inside the test process: the same parsing, errors and exit codes, without a new Python."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from phonograd.cli import phonograd
from phonograd.console import run

WORDS = ["the", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "and", "then", "it", "slept", "well", "soon"]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The command's --json output."""
        assert self.code == 0, self.err
        return json.loads(self.out)


Run = Callable[..., Outcome]


def text_of(seed: int, messages: int) -> bytes:
    """Messages of 4 to 9 words, different for each seed."""
    random = Random(seed)
    lines = [" ".join(random.choices(WORDS, range(15, 0, -1), k=random.randint(4, 9))) for _ in range(messages)]
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture
def phono(capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a phonograd command."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = run(phonograd, [str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@dataclass(frozen=True)
class Workplace:
    """Texts and artifacts of a tiny model."""

    folder: Path
    user: Path
    general: Path
    vocabulary: Path
    artifacts: Path


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Made once by the commands themselves."""
    folder = tmp_path_factory.mktemp("work")
    place = Workplace(folder, folder / "user.txt", folder / "general.txt", folder / "vocab.txt", folder / "artifacts")
    place.user.write_bytes(text_of(1, 60))
    place.general.write_bytes(text_of(2, 200))
    for arguments in (
        ["vocab", "build", place.general, "--size", "17", "--out", place.vocabulary],
        ["export", "--preset", "tiny", "--vocab", place.vocabulary, "--seed", "3", "--out", place.artifacts],
    ):
        assert run(phonograd, [*map(str, arguments), "--quiet", "--json"]) == 0
    return place


def keys(**tables: str) -> list[str]:
    """The options that set these keys: `training="bptt=5 minibatch=3"` is --set training.bptt=5 and one more."""
    return [word for path, given in tables.items() for one in given.split() for word in ("--set", f"{path}.{one}")]
