"""One phone at a time: what rehearsal and learning without forgetting (LwF) keep of the general model (paper P)."""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Literal

import msgspec

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS, Share
from phonograd.papers.kinds.simulated import mean_perplexity
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.users import Messages, read_users, text_slice


class Method(Record, frozen=True):
    """How a phone trains: rehearsal with the user's share λ of the tokens, or LwF with λ of the loss. 1 is neither."""

    method: Literal["rehearsal", "lwf"]
    user_share: Share


class Settings(Record, frozen=True):
    """nodes: users who train, drawn at random by the seed, each on its first text_bytes; the next test_bytes are its
    test. methods: by row.
    """

    nodes: Positive
    text_bytes: Positive
    test_bytes: Positive
    methods: dict[str, Method]
    epochs: Positive = 1


@dataclasses.dataclass(frozen=True)
class _Node:
    name: str
    training: Messages
    test: Messages


@dataclasses.dataclass(frozen=True)
class _Phone:
    """Trains and evaluates one node after the other."""

    context: Context
    settings: Settings
    rehearsal: Path
    general_test: Path

    def measure(self, node: _Node, method: Method | None) -> dict[str, float]:
        """Scores of the general model (no method), or of the one that the node trained, in nats and shares."""
        artifacts = self.context.input("artifacts")
        if method is None:
            return self._scores(artifacts, None, node)
        if method.method == "lwf":
            artifacts = _with_lwf(self.context, method.user_share)
        trained = self.context.work / "trained.safetensors"
        with_rehearsal = method.method == "rehearsal" and method.user_share < 1
        done = phonograd.train(
            artifacts,
            node.training,
            rehearsal=self.rehearsal if with_rehearsal else None,
            user_share=method.user_share if with_rehearsal else None,
            epochs=self.settings.epochs,
            seed=self.context.seed,
            out=trained,
            options=self._options(),
        )
        return self._scores(artifacts, trained, node) | {"tokens": done.report.tokens}

    def _scores(self, artifacts: Path, weights: Path | None, node: _Node) -> dict[str, float]:
        with phonograd.open_model(artifacts, weights=weights, options=self._options()) as model:
            general = model.evaluate(self.general_test, kss=True)
            user = model.evaluate(node.test, kss=True)
        assert general.kss is not None and user.kss is not None
        return {
            "general": math.log(general.perplexity),
            "general KSS": general.kss,
            "user": math.log(user.perplexity),
            "user KSS": user.kss,
        }

    def _options(self) -> phonograd.BackendOptions:
        return phonograd.BackendOptions(threads=self.context.workers)


def run(settings: Settings, context: Context) -> Outcome:
    """Train each node by each method, from the same general model; rows are means over nodes."""
    phone = _Phone(context, settings, context.input("rehearsal"), context.input("general-test"))
    nodes = _nodes(read_users(context.input("users")), settings, context.seed)
    methods: Mapping[str, Method | None] = {"initial": None, **settings.methods}
    rows: dict[str, dict[str, float]] = {}
    for place, (row, method) in enumerate(methods.items()):
        measured = []
        for number, node in enumerate(nodes):
            context.progress(place * len(nodes) + number, len(methods) * len(nodes), f"{row}, {node.name}")
            measured.append(context.kept(f"{row} / {node.name}", partial(phone.measure, node, method)))
        rows[row] = _means(measured)
    vocabulary = phonograd.Vocabulary.load(context.input("artifacts") / VOCABULARY)
    tokens = fmean(len(vocabulary.encode(node.training)) for node in nodes)
    return Outcome(rows, {"nodes": len(nodes), "the users' training tokens, mean": tokens})


def _means(measured: list[dict[str, float]]) -> dict[str, float]:
    """Perplexities are geometric means, as of one test made of all; keystroke savings in %."""
    general, user = fmean(one["general"] for one in measured), fmean(one["user"] for one in measured)
    return {
        "general perplexity": math.exp(general),
        "general KSS, %": 100 * fmean(one["general KSS"] for one in measured),
        "user perplexity": math.exp(user),
        "user KSS, %": 100 * fmean(one["user KSS"] for one in measured),
        "mean perplexity": mean_perplexity(math.exp(general), math.exp(user)),
    }


def _nodes(users: Mapping[str, Messages], settings: Settings, seed: int) -> list[_Node]:
    """Those drawn from the users with enough text. Raises TextError if they are too few."""
    wanted = settings.text_bytes + settings.test_bytes
    enough = [user for user in sorted(users) if sum(len(message) + 1 for message in users[user]) >= wanted]
    if len(enough) < settings.nodes:
        raise TextError(f"users: {settings.nodes} with {wanted} bytes of text expected, found {len(enough)}")
    return [_split(user, users[user], settings) for user in Random(seed).sample(enough, settings.nodes)]


def _split(user: str, messages: Messages, settings: Settings) -> _Node:
    training, _ = text_slice(messages, settings.text_bytes, 0)
    return _Node(user, training, text_slice(messages[len(training) :], settings.test_bytes, 0)[0])


def _with_lwf(context: Context, user_share: float) -> Path:
    """The artifacts with LwF's training graph, whose λ is a constant of it; exported once."""
    folder = context.shared / f"lwf-{user_share:g}"
    if not (folder / "manifest.json").exists():
        given = context.input("artifacts")
        training = phonograd.open_artifacts(given).manifest.training
        lwf = msgspec.structs.replace(training, loss="lwf", user_share=user_share)
        phonograd.export_artifacts(given / WEIGHTS, given / VOCABULARY, folder, training=lwf)
    return folder
