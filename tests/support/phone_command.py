"""The phone's command, built for this host, and a small model to run it on."""

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import build_host_command
from tests.support.artifacts import exported

# Dropout, clipping and two layers: everything that a step hands to the next one matters to the bits.
MODEL = LanguageModelConfig("lstm", vocabulary=600, embedding=32, hidden=48, layers=2)
TRAINING = TrainingConfig(minibatch=3, bptt=5, learning_rate=0.5, clip_norm=2.0, dropout=0.2)
STEPS = 40


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code, events and the line on stderr."""

    code: int
    events: list[dict[str, Any]]
    err: str

    def only(self, event: str) -> dict[str, Any]:
        """The one event of that name."""
        found = [line for line in self.events if line["event"] == event]
        assert len(found) == 1, (event, self.events, self.err)
        return found[0]


@dataclass(frozen=True)
class Place:
    """The command, artifacts, and texts of STEPS windows."""

    command: Path
    artifacts: Artifacts
    user: Path
    general: Path

    def line(self, *arguments: object) -> list[str]:
        """The command line of a subcommand."""
        return [str(self.command), *map(str, arguments)]

    def train_line(self, *options: object) -> list[str]:
        """The command line of an epoch over the user's text; of seed 0 on one thread, if the options say nothing."""
        seed = () if {"--seed", "--phone"}.intersection(map(str, options)) else ("--seed", 0)
        threads = () if {"--threads", "--cores"}.intersection(map(str, options)) else ("--threads", 1)
        return self.line("train", self.artifacts.folder, "--user", self.user, *seed, *threads, *options)

    def run(self, *arguments: object, **settings: Any) -> Outcome:
        """Run a subcommand to its end."""
        return outcome_of(self.line(*arguments), **settings)

    def train(self, *options: object, **settings: Any) -> Outcome:
        """Train an epoch over the user's text, to its end or until it fails."""
        return outcome_of(self.train_line(*options), **settings)


def outcome_of(line: list[str], **settings: Any) -> Outcome:
    """Run a command line whose stdout is JSON lines."""
    done = subprocess.run(line, capture_output=True, text=True, check=False, **settings)
    return Outcome(done.returncode, [json.loads(event) for event in done.stdout.splitlines()], done.stderr)


def until_step(line: list[str], step: int, number: signal.Signals, after: float = 0.0) -> Outcome:
    """Start an epoch and send it a signal `after` seconds after it reported a step.

    It runs at the lowest priority: on a busy machine the signal would come many steps later.
    """
    humble = ["nice", "-n", "19", *line]
    with subprocess.Popen(humble, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        events = []
        for text in process.stdout:
            events.append(json.loads(text))
            if events[-1].get("step") == step and events[-1]["event"] == "step":
                break
        time.sleep(after)
        process.send_signal(number)
        rest = process.stdout.read()
        # What SIGKILL cuts off may be half a line.
        events += [json.loads(text) for text in rest.splitlines(keepends=True) if text.endswith("\n")]
        err = process.stderr.read()
    return Outcome(process.returncode, events, err)


def text_of(seed: int, tokens: int) -> bytes:
    """Messages of 7 words and <eos>, so many tokens in all; most words are of the vocabulary."""
    random = Random(seed)
    words = [f"w{min(random.randrange(700), random.randrange(700))}" for _ in range(tokens // 8 * 7)]
    lines = [" ".join(words[at : at + 7]) for at in range(0, len(words), 7)]
    return "\n".join(lines).encode() + b"\n"


def make_place(folder: Path, model: LanguageModelConfig = MODEL) -> Place:
    """Build the command and make all that it needs."""
    place = Place(build_host_command().path, exported(model, TRAINING), folder / "user.txt", folder / "general.txt")
    place.user.write_bytes(text_of(1, STEPS * TRAINING.minibatch * TRAINING.bptt))
    place.general.write_bytes(text_of(2, 4000))
    return place


def outputs(folder: Path) -> tuple[object, ...]:
    """Options that ask for both output files, in a folder."""
    return ("--out", folder / "out", "--update", folder / "update")


def read_outputs(folder: Path) -> Mapping[str, bytes]:
    """What `outputs` asked for."""
    return {name: (folder / name).read_bytes() for name in ("out", "update")}


KEYS = {
    "--lr": "training.learning_rate",
    "--epochs": "training.epochs",
    "--user-share": "training.user_share",
    "--max-unknown": "training.max_unknown",
    "--threads": "engine.threads",
}


def python_line(command: str, *options: object) -> list[str]:
    """The same line for `phonograd`, whose `train` has keys where the phone's has options."""
    words = [command, *map(str, options)]
    if command != "train":
        return words
    places = [place for place, word in enumerate(words) if word in KEYS]
    for place in places:
        words[place : place + 2] = "--set", f"{KEYS[words[place]]}={words[place + 1]}"
    return words
