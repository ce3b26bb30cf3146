"""One phone at a time: what rehearsal and learning without forgetting (LwF) keep of the general model (paper P)."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal

import msgspec

import phonograd
from phonograd.device_runtime.base.documents import Amount, Positive, Record
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.settings import Share
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.papers.arms import Arm
from phonograd.papers.kinds.simulated import figures_on
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.users import Messages, read_users, text_slice

_PAIRED = ("general perplexity", "general KSS, %", "user perplexity", "user KSS, %", "mean perplexity")


class Method(Record, frozen=True):
    """How a phone trains on text_bytes: rehearsal with the user's share λ of them, or LwF with λ of the loss, on user's
    text alone; 1 is neither. on_top: the user's text fills text_bytes, and rehearsal comes on top.
    """

    method: Literal["rehearsal", "lwf"]
    user_share: Share
    text_bytes: Positive = 20_000
    learning_rate: Amount = 0.75
    on_top: bool = False

    @property
    def user_bytes(self) -> int:
        """The user's own text."""
        whole = self.method == "lwf" or self.on_top
        return self.text_bytes if whole else round(self.user_share * self.text_bytes)


class Settings(Record, frozen=True):
    """nodes: users who train, drawn at random by the seed. methods: by row; each trains on the start of the user's
    first text_bytes, the next test_bytes are its test. output_sample: words drawn for the output layer, but LwF's.
    """

    nodes: Positive
    text_bytes: Positive
    test_bytes: Positive
    methods: dict[str, Method]
    output_sample: Positive | None = None


@dataclasses.dataclass(frozen=True)
class _Node:
    name: str
    training: Messages
    test: Messages


@dataclasses.dataclass(frozen=True)
class _Phone:
    context: Context
    settings: Settings

    def measure(self, node: _Node, method: Method | None) -> dict[str, Any]:
        artifacts = self.context.input("artifacts")
        if method is None:
            return self._scores(artifacts, None, node)
        lwf = method.method == "lwf"
        if lwf:
            artifacts = self._lwf_artifacts(method.user_share)
        trained = self.context.work / "trained.safetensors"
        with_rehearsal = not lwf and method.user_share < 1
        messages = _cut(node.training, method.user_bytes)
        SplitMix64(stream_of(self.context.seed, node.name)).shuffle(messages)  # as rehearsal is
        settings = phonograd.TrainSettings(
            user_share=method.user_share if with_rehearsal else None,
            seed=self.context.seed,
            learning_rate=method.learning_rate,
            output_sample=None if lwf else self.settings.output_sample,
            sample_seed=None if lwf or self.settings.output_sample is None else self.context.seed,
            options=self._options(),
        )
        rehearsal = self.context.input("rehearsal") if with_rehearsal else None
        done = phonograd.train(artifacts, messages, settings, rehearsal=rehearsal, out=trained)
        return self._scores(artifacts, trained, node) | {"tokens": done.report.tokens}

    def _lwf_artifacts(self, user_share: float) -> Path:
        """The artifacts with LwF's training graph, whose λ is a constant of it; exported once."""
        folder = self.context.shared / f"lwf-{user_share:g}"
        if not (folder / "manifest.json").exists():
            given = self.context.input("artifacts")
            training = phonograd.open_artifacts(given).manifest.training
            lwf = msgspec.structs.replace(training, loss="lwf", user_share=user_share)
            phonograd.export_artifacts(given / WEIGHTS, given / VOCABULARY, folder, training=lwf)
        return folder

    def _scores(self, artifacts: Path, weights: Path | None, node: _Node) -> dict[str, Any]:
        with phonograd.open_model(artifacts, weights=weights, options=self._options()) as model:
            tests: dict[str, Path | Messages] = {"general": self.context.input("general-test"), "user": node.test}
            return {whose: dataclasses.asdict(model.evaluate(text, kss=True)) for whose, text in tests.items()}

    def _options(self) -> phonograd.BackendOptions:
        return phonograd.BackendOptions(threads=self.context.workers)


def run(settings: Settings, context: Context) -> Outcome:
    """Train each node by each method, from the same general model; rows are means over nodes."""
    phone = _Phone(context, settings)
    users, nodes = read_users(context.input("users")), []
    for name in draw_users(users, settings.nodes, settings.text_bytes + settings.test_bytes, context.seed):
        training, _ = text_slice(users[name], settings.text_bytes, 0)
        test, _ = text_slice(users[name][len(training) :], settings.test_bytes, 0)
        nodes.append(_Node(name, training, test))
    methods: Mapping[str, Method | None] = {"initial": None, **settings.methods}
    rows: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, list[float]]] = {}
    for place, (row, method) in enumerate(methods.items()):
        measured = []
        for number, node in enumerate(nodes):
            context.progress(place * len(nodes) + number, len(methods) * len(nodes), f"{row}, {node.name}")
            measured.append(context.measure_once(f"{row} / {node.name}", partial(phone.measure, node, method)))
        general, user = ([Evaluation(**one[whose]) for one in measured] for whose in ("general", "user"))
        rows[row] = figures_on(general, user)
        of_nodes = [figures_on([one], [other]) for one, other in zip(general, user, strict=True)]
        units[row] = {name: [one[name] for one in of_nodes] for name in _PAIRED}
        rows[row] |= {"tokens trained": fmean(one.get("tokens", 0) for one in measured)}
    return Outcome(rows, {"nodes": len(nodes)}, units)


def arms(settings: Settings) -> dict[str, Arm]:
    """What the methods' names say of them."""
    return {
        row: Arm({"λ =": one.user_share, "rate": one.learning_rate, "KB": one.text_bytes / 1000})
        for row, one in settings.methods.items()
    }


def draw_users(users: Mapping[str, Messages], count: int, nbytes: int, seed: int) -> list[str]:
    """Draw users who have so many bytes of text. Raises TextError for too few."""
    enough = [user for user in sorted(users) if sum(len(message) + 1 for message in users[user]) >= nbytes]
    if len(enough) < count:
        raise TextError(f"users: {count} with {nbytes} bytes of text expected, found {len(enough)}")
    return Random(seed).sample(enough, count)


def _cut(messages: Messages, nbytes: int) -> Messages:
    """The first nbytes of a text, whose last message may lose its last words: all methods train on as much."""
    taken: Messages = []
    for message in messages:
        if len(message) > nbytes:
            return [*taken, *([cut] if (cut := message[:nbytes].rpartition(b" ")[0]) else [])]
        taken.append(message)
        nbytes -= len(message) + 1
    return taken
