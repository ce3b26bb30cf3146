"""Phones whose app takes part in rounds by RoundClient, on a JVM, and servers that they meet."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.security.registry import PhoneRegistry
from tests.android_harness.app.jvm import Jvm
from tests.server_agg.workshop import RunningServer, Workshop, run_server
from tests.support.phone_command import MODEL, Place, text_of
from tests.support.waiting import PATIENCE_SECONDS

STEPS = 4  # of an epoch
# What may be in a workspace between two rounds.
REMAINS = {"artifacts", "model.safetensors", "round.json", "round.lock"}


@dataclass(frozen=True)
class Said:
    """What a phone said after a step: see RoundDrive."""

    action: str
    after: int
    refused: str
    receipt: str
    trouble: str


class App:
    """A running app: `ask` sends its phones a command and returns what they said."""

    def __init__(self, process: "subprocess.Popen[str]"):
        self.process = process
        self.steps = 0

    def ask(self, command: str) -> list[list[str]]:
        """The lines of a command; of a process that died, those until then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        for text in self.process.stdout:
            words = text.rstrip("\n").split("\t")
            if words[0] == "did":
                self.steps = int(words[2])
                break
            lines.append(words)
        return lines

    def scene(self, phones: "Phones", url: str, step: int) -> None:
        """Begin again, with these phones at this server; at that step one is killed, and the app lives on."""
        self.ask(f"scene {url} {phones.text} {phones.folder} {step}")

    def network(self) -> Said:
        """One network step of the one phone."""
        ((_, action, after, refused, receipt, trouble),) = self.ask("network")
        return Said(action, int(after), refused, receipt, trouble)

    def train(self) -> list[str]:
        """One training of the one phone."""
        *_, (_, *words) = self.ask("train")
        return words


@dataclass
class Phones:
    """Phones with a workspace each."""

    jvm: Jvm
    place: Place
    folder: Path
    names: Sequence[str] = ("phone-17",)
    token: str = "-"

    def __post_init__(self) -> None:
        self.text, lib = self.folder / "text.txt", self.folder / "lib"
        self.text.write_bytes(text_of(5, STEPS * 15))
        lib.mkdir()
        (lib / "libphonograd_phone.so").symlink_to(self.place.command)
        for name in self.names:
            self.workspace(name).mkdir()
            (self.workspace(name) / "artifacts").symlink_to(self.place.artifacts.folder)

    def enrol(self, server: RunningServer) -> None:
        """Give the one phone a token of the server's."""
        self.token = PhoneRegistry(server.coordinator.ledger).add("phone-17", "phone", "90d", "me").token

    def workspace(self, name: str = "phone-17") -> Path:
        return self.folder / name

    @contextlib.contextmanager
    def app(self, url: str, **properties: object) -> Iterator[App]:
        """An app for a server. At the end it leaves by itself, unless it halted."""
        options = [f"-D{name}={value}" for name, value in properties.items()]
        words = (url, self.folder / "lib" / "binary", self.text, self.folder, self.token, *self.names)
        line = [*self.jvm.java("org.phonograd.RoundDrive", *options), *map(str, words)]
        with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            yield App(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE_SECONDS) == (137 if {"halt", "die"} & set(properties) else 0)

    def serving(self, **changes: Any) -> contextlib.AbstractContextManager[RunningServer]:
        """See `serving`."""
        return serving(self.place, self.folder, **changes)

    def models(self) -> set[str]:
        """Hashes of the models that the phones have."""
        return {sha256_of_file(self.workspace(name) / "model.safetensors") for name in self.names}

    def remains(self) -> set[str]:
        """The files of all workspaces."""
        return {path.name for name in self.names for path in self.workspace(name).iterdir()}


@contextlib.contextmanager
def serving(place: Place, folder: Path, **changes: Any) -> Iterator[RunningServer]:
    """A server of the phones' model; one update closes a round."""
    workshop = Workshop(folder, MODEL, place.artifacts)
    with run_server(workshop, folder / "server", **{"clients_per_round": 1} | changes) as server:
        yield server
