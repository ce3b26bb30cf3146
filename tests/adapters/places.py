"""What the tests of engines share: a tiny model, texts, and workers that are killed at a chosen place."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

import phonograd

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
TRAINING = phonograd.TrainingConfig(minibatch=2, bptt=5)
GENERAL = [f"w{number % 17} w{number % 5} w{number % 7} w{number % 3}" for number in range(100)]
USERS = {
    f"user-{user}": [f"w{(user + line) % 6} w{user} w{(user * line) % 4}" for line in range(30)] for user in range(5)
}

# Python runs this file in every process that finds it. The first that comes to a place is killed there.
KILLER = """
import os, signal, time
from importlib import import_module
from pathlib import Path

def killed_once(owner, name):
    function = getattr(owner, name)
    def wrapped(*args, **kwargs):
        try:
            os.close(os.open(Path(os.environ["KILLED"]) / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return function(*args, **kwargs)
        if "SLEEPS" in os.environ:
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, wrapped)

if "KILLED" in os.environ:
    module, owner, *names = os.environ["KILL_AT"].split()
    for name in names:
        killed_once(getattr(import_module(module), owner), name)
"""


@dataclass(frozen=True)
class Workshop:
    """Artifacts, and an update of each user."""

    artifacts: phonograd.Artifacts
    updates: Sequence[Path]


def served_model_hash(
    artifacts: phonograd.Artifacts,
    texts: Mapping[str, Sequence[str]],
    folder: Path,
    strategy: phonograd.StrategySettings | None = None,
) -> str:
    """The hash of the model after two rounds of all users through phonograd's own server."""
    settings = phonograd.ServerSettings(
        port=0,
        rules=phonograd.RoundRules(clients_per_round=len(texts)),
        strategy=strategy or phonograd.StrategySettings(),
    )
    with phonograd.start_server(artifacts, folder / "state", settings) as server:
        for number in (1, 2):
            for user, text in texts.items():
                joined = phonograd.join_round(server.url, artifacts, user, cache=folder / "models")
                here = phonograd.TrainSettings(weights=joined.weights, round_number=number, phone=user, codec="rot-q4")
                phonograd.train(artifacts, text, here, update=folder / "update")
                joined.send(folder / "update")
        return phonograd.current_round(server.url).base_sha256


class Descendants:
    """The processes that this one starts from now on, and theirs: they have a mark in their environment."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self._mark = f"PHONOGRAD_TEST_MARK={uuid4()}"
        patch.setenv(*self._mark.split("="))

    def running_lines(self) -> list[str]:
        """The command lines of those that run."""
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and process.name != str(os.getpid()):
                try:
                    if self._mark.encode() in (process / "environ").read_bytes():
                        found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:  # it has ended
                    continue
        return [line for line in found if line]  # a zombie has no command line


@dataclass(frozen=True)
class Kills:
    """Workers are killed the first time they call `names` of `owner` in `module`."""

    folder: Path
    names: Sequence[str]

    @property
    def done(self) -> bool:
        """Whether one was killed at each."""
        return all((self.folder / name).exists() for name in self.names)


def kill_workers(patch: pytest.MonkeyPatch, folder: Path, module: str, owner: str, *names: str) -> Kills:
    """Let workers that are started from now on be killed, by SIGKILL, once at each of the functions."""
    (folder / "sitecustomize").mkdir()
    (folder / "killed").mkdir()
    (folder / "sitecustomize/sitecustomize.py").write_text(KILLER)
    path = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", f"{folder / 'sitecustomize'}{os.pathsep + path if path else ''}")
    patch.setenv("KILL_AT", f"{module} {owner} {' '.join(names)}")
    patch.setenv("KILLED", str(folder / "killed"))
    return Kills(folder / "killed", names)
