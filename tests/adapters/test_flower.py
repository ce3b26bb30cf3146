"""A Flower strategy makes the models of our own server: from replies taken one by one, and as docs/flower.md runs."""

import os
import re
import subprocess
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import phonograd
from phonograd.adapters.flower import UpdateStrategy, train_reply
from phonograd.adapters.flower.files import ARRAYS, STYPE, UPDATE
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from tests.adapters.places import GENERAL, USERS, Descendants, Workshop, served_model_hash
from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.flower
NODES = dict(enumerate(USERS, start=1))
Answer = Callable[[Message], Message]


class FakeGrid:
    """Nodes of this process: each answers when its reply is pulled. most_alive: of replies' arrays at the same time,
    without the garbage collector's help; most_files: of updates in `folder`, when the next reply is pulled.
    """

    def __init__(self, answers: dict[int, Answer], folder: Path = Path("nowhere")):
        # Messages need a run, node and task; any ids do, because none is sent.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._answers = answers
        self._sent: list[Message] = []
        self._alive: list[weakref.ref[Array]] = []
        self.most_alive = self.most_files = 0
        self._folder = folder

    def get_node_ids(self) -> Iterable[int]:
        return list(self._answers)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        first = len(self._sent)
        self._sent += messages
        return [str(number) for number in range(first, len(self._sent))]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = []
        self.most_files = max(self.most_files, len(list(self._folder.glob("updates-*/*"))))
        for identifier in message_ids:
            message = self._sent[int(identifier)]
            reply = self._answers[message.metadata.dst_node_id](message)
            reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
            found.append(reply)
            if not reply.has_error():
                arrays = [record for record in reply.content.values() if isinstance(record, ArrayRecord)]
                self._alive += [weakref.ref(array) for record in arrays for array in record.values()]
                del arrays
        self.most_alive = max(self.most_alive, sum(one() is not None for one in self._alive))
        return found


def phone(workshop: Workshop, user: str) -> Answer:
    settings = phonograd.TrainSettings(phone=user, codec="rot-q4")
    return lambda message: train_reply(message, workshop.artifacts, USERS[user], settings)


def replying(update: bytes) -> Answer:
    """A node that answers with these bytes as update."""

    def answer(message: Message) -> Message:
        arrays = ArrayRecord({UPDATE: Array("uint8", (len(update),), STYPE, update)})
        return Message(RecordDict({ARRAYS: arrays}), reply_to=message)

    return answer


STRATEGIES = (
    phonograd.StrategySettings(),
    phonograd.StrategySettings(strategy="median", server_optimizer="adam", server_lr=0.01),
)


@pytest.mark.parametrize("settings", STRATEGIES, ids=lambda settings: settings.strategy)
def test_the_models_of_our_own_server(
    workshop: Workshop, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, settings: phonograd.StrategySettings
) -> None:
    grid = FakeGrid({node: phone(workshop, user) for node, user in NODES.items()}, tmp_path)
    strategy = UpdateStrategy(workshop.artifacts, tmp_path, settings, clients_per_round=len(NODES))
    result = strategy.start(grid, num_rounds=2)
    place = tmp_path_factory.mktemp("served")
    assert strategy.model_sha256 == served_model_hash(workshop.artifacts, USERS, place, settings)
    assert strategy.refusals == {1: (), 2: ()}
    assert grid.most_alive == 1
    assert grid.most_files == (0 if settings.strategy == "fedavg" else len(NODES) - 1)
    (array,) = result.arrays.values()
    assert array.data == strategy.model.read_bytes()
    metrics = result.train_metrics_clientapp[2]
    assert (metrics["updates"], metrics["refused"], metrics["repeated"]) == (len(NODES), 0, 0)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]  # updates are gone


def not_finite(workshop: Workshop, folder: Path) -> bytes:
    trained = {
        name: np.full_like(values, 1.5)
        for name, values in load_tensors(workshop.artifacts.path("weights.safetensors")).items()
    }
    phonograd.encode_update(trained, workshop.artifacts, folder / "update", tokens=1, codec="full-f32")
    data = (folder / "update").read_bytes()[:-8] + np.float32(np.nan).tobytes()  # a value and the checksum end the file
    return data + zlib.crc32(data).to_bytes(4, "little")


def of_another_base(workshop: Workshop, folder: Path) -> bytes:
    weights = load_tensors(workshop.artifacts.path("weights.safetensors"))
    save_tensors(folder / "other", weights, {"other": "model"})
    phonograd.encode_update(weights, folder / "other", folder / "update", tokens=1, codec="full-f32")
    return (folder / "update").read_bytes()


def test_what_is_no_update_is_refused_and_named_and_the_round_goes_on(workshop: Workshop, tmp_path: Path) -> None:
    sound = workshop.updates[0].read_bytes()
    (tmp_path / "work").mkdir()
    weights = workshop.artifacts.path("weights.safetensors").read_bytes()

    def flowers_own(message: Message) -> Message:
        content = {"arrays": ArrayRecord([np.zeros(3)]), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    bad: dict[int, tuple[Answer, str]] = {
        2: (replying(b""), "truncated|expected|found"),
        3: (replying(sound[:-1]), "the update: "),
        4: (replying(not_finite(workshop, tmp_path / "work")), "finite"),
        5: (replying(of_another_base(workshop, tmp_path / "work")), "made from model .*, expected"),
        6: (replying(weights), "not an update"),
        7: (lambda message: Message(RecordDict({}), reply_to=message), "no file update.safetensors"),
        8: (flowers_own, "no file update.safetensors"),
        9: (lambda message: Message(Error(3, "it broke"), reply_to=message), "error: it broke"),
        10: (replying(b"\0" * 1000), "the update: "),
    }
    grid = FakeGrid({1: replying(sound)} | {node: answer for node, (answer, _) in bad.items()})
    strategy = UpdateStrategy(workshop.artifacts, tmp_path / "models", clients_per_round=10)
    result = strategy.start(grid, num_rounds=1)
    alone = phonograd.fold_updates([workshop.updates[0]], workshop.artifacts, tmp_path / "alone")
    assert strategy.model_sha256 == alone.sha256
    assert result.train_metrics_clientapp[1]["refused"] == len(bad)
    lines = strategy.refusals[1]
    assert len(lines) == len(bad)
    for node, (_, expected) in bad.items():
        (line,) = [line for line in lines if line.startswith(f"node {node}: ")]
        assert re.search(expected, line), line
        assert str(tmp_path) not in line


def test_a_node_that_never_answers_is_not_waited_for_beyond_the_timeout(workshop: Workshop, tmp_path: Path) -> None:
    class Silent(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            (identifier,) = message_ids
            silent = self._sent[int(identifier)].metadata.dst_node_id == 1
            return [] if silent else super().pull_messages([identifier])

    grid = Silent({1: replying(b""), 2: replying(workshop.updates[0].read_bytes())})
    strategy = UpdateStrategy(workshop.artifacts, tmp_path, clients_per_round=2)
    result = strategy.start(grid, num_rounds=1, timeout=0)
    assert result.train_metrics_clientapp[1]["updates"] == 1


def test_what_flower_cannot_do(workshop: Workshop, tmp_path: Path) -> None:
    for name in ("dp-fedavg", "transfer"):
        with pytest.raises(phonograd.UsageError, match=f"strategy {name}: not available in Flower"):
            UpdateStrategy(workshop.artifacts, tmp_path, phonograd.StrategySettings(strategy=name))
    message = Message(RecordDict({"config": ConfigRecord()}), 1, "train")
    with pytest.raises(phonograd.UsageError, match="round_number"):
        train_reply(message, workshop.artifacts, ["w1"], phonograd.TrainSettings(round_number=3))
    with pytest.raises(phonograd.UpdateError, match="no file weights.safetensors"):
        train_reply(message, workshop.artifacts, ["w1"])


PAGE = (Path(__file__).parent.parent.parent / "docs/flower.md").read_text("utf-8")
COMMANDS = Path(sys.executable).parent
TEXTS = {f"phone-{number}": GENERAL[number :: 2 + number] for number in range(2)}


def block(language: str) -> str:
    """The page's only block of code in a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@dataclass(frozen=True)
class Flower:
    """Flower's commands in a folder of their own."""

    folder: Path
    port: int
    resources: ExitStack

    def start(self, command: str, *arguments: object) -> None:
        """Start it; it ends with the test."""
        log = self.resources.enter_context((self.folder / f"{command}.log").open("a"))
        line = [COMMANDS / command, "--insecure", *arguments]
        process = subprocess.Popen([*map(str, line)], stdout=log, stderr=log)
        self.resources.callback(process.wait, PATIENCE_SECONDS)
        self.resources.callback(process.terminate)

    def superlink(self, *arguments: object) -> None:
        self.start("flower-superlink", "--disable-runtime-dependency-installation", "--port", self.port, *arguments)
        until(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/health").is_success
        except httpx.TransportError:
            return False

    def run(self, workshop: Workshop, *arguments: str) -> str:
        """Run the page's program. Returns what its server printed."""
        paths = {"artifacts": workshop.artifacts.folder, "texts": self.folder, "models": self.folder / "models"}
        config = " ".join(f'{name}="{path}"' for name, path in paths.items())
        line = [COMMANDS / "flwr", "run", self.folder / "app", "here", "--stream", "--run-config", config, *arguments]
        done = subprocess.run([*map(str, line)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        return done.stdout + done.stderr


@pytest.fixture
def flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descendants: Descendants) -> Iterator[Flower]:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/app.py").write_text(block("python"))
    (tmp_path / "app/pyproject.toml").write_text(block("toml"))
    for number, text in enumerate(TEXTS.values()):
        (tmp_path / f"{number}.txt").write_text("\n".join(text))
    home = {"FLWR_HOME": tmp_path / "home", "FLWR_TELEMETRY_ENABLED": 0, "FLWR_DISABLE_UPDATE_CHECK": 1}
    for name, value in home.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{COMMANDS}{os.pathsep}{os.environ['PATH']}")
    with reserved_port() as port, ExitStack() as resources:
        # Ray's files, which stay; a short path, as its sockets' paths must fit 107 bytes
        monkeypatch.setenv("RAY_TMPDIR", resources.enter_context(tempfile.TemporaryDirectory(prefix="pg-")))
        (tmp_path / "home").mkdir()
        (tmp_path / "home/config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )
        yield Flower(tmp_path, port, resources)


@pytest.fixture(scope="module")
def model(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of our own server's model after the same two rounds."""
    return served_model_hash(workshop.artifacts, TEXTS, tmp_path_factory.mktemp("served"))


def test_on_a_superlink_with_supernodes(workshop: Workshop, flower: Flower, model: str) -> None:
    flower.superlink()
    with reserved_port() as one, reserved_port() as other:
        for number, port in enumerate((one, other)):
            address = ("--superlink", f"127.0.0.1:{flower.port}", "--port", port)
            flower.start("flower-supernode", *address, "--node-config", f"partition-id={number}")
        said = flower.run(workshop)
    assert f"model {model}" in said, said


def test_simulated(workshop: Workshop, flower: Flower, model: str) -> None:
    flower.superlink("--simulation")
    said = flower.run(
        workshop, "--federation-config", "num-supernodes=2 init-args-num-cpus=2 client-resources-num-cpus=1"
    )
    assert f"model {model}" in said, said
