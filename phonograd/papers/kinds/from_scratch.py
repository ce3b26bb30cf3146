"""Federated rounds from random weights: one text cut into a shard a client, one simulation a row."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.messages import read_messages
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import SimulationRecord
from phonograd.simulation.users import Messages, text_slice

LOST = 1e9  # a perplexity of a model that diverged: larger ones say no more


class Run(Record, frozen=True):
    """One simulation. model, simulation, strategy: settings that differ from the others'."""

    model: dict[str, Any] = field(default_factory=dict)
    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


class Settings(Record, frozen=True):
    """model: its vocabulary is built from the text. clients: IID shards of the text, whose messages are dealt out in
    turn; each takes shard_bytes. test_bytes: of the general test that is used. training, simulation, strategy:
    TrainingConfig, SimulationSettings and StrategySettings by name, for all runs. runs: by row.
    """

    model: LanguageModelConfig
    clients: Positive
    shard_bytes: Positive
    test_bytes: Positive
    runs: dict[str, Run]
    training: dict[str, Any] = field(default_factory=dict)
    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, each from the same random weights if its model is the same."""
    text, test = context.input("training-text"), context.input("test-text")
    shards = _shards(read_messages(text), settings)
    messages, _ = text_slice(read_messages(test), settings.test_bytes, 0)
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {}
    for place, (row, one) in enumerate(settings.runs.items()):
        context.progress(place, len(settings.runs), row)
        record = phonograd.simulate(
            _artifacts(settings, one, text, context),
            shards,
            context.folder(row),
            _simulation(settings, one, context.seed),
            general_test=messages,
            workers=context.workers,
        )
        rows[row] = _figures(record)
        facts |= {f"{row}: tokens trained": sum(ended.tokens for ended in record.rounds)}
        facts |= {f"{row}: MB up": sum(ended.bytes_up for ended in record.rounds) / 1e6}
    return Outcome(rows, facts)


def _figures(record: SimulationRecord) -> dict[str, float]:
    last = record.rounds[-1]
    if last.quality is None or last.quality.general is None:
        raise TextError("simulation: a general test expected, which the figures are of; none found")
    general = last.quality.general
    figures = {"perplexity": min(general.perplexity, LOST), "top-1, %": 100 * general.top1}
    if last.epsilon is not None:
        figures["epsilon"] = last.epsilon
    return figures


def _artifacts(settings: Settings, one: Run, text: Path, context: Context) -> phonograd.Artifacts:
    """The run's model with weights drawn by the seed; runs with the same model share it."""
    model = msgspec.structs.replace(settings.model, **one.model)
    folder = context.work / "-".join(str(part) for part in msgspec.structs.astuple(model))
    if not (folder / "manifest.json").exists():
        words = folder.with_suffix(".txt")
        phonograd.build_vocabulary([text], model.vocabulary).write(words)
        weights = phonograd.seeded_weights(model, context.seed)
        training = phonograd.TrainingConfig(**settings.training)
        phonograd.export_artifacts(weights, words, folder, training=training, shape=model)
    return phonograd.open_artifacts(folder)


def _simulation(settings: Settings, one: Run, seed: int) -> phonograd.SimulationSettings:
    chosen = {"test_users": 0, "text_bytes": settings.shard_bytes, "seed": seed}
    return settings_of(chosen | settings.simulation | one.simulation, settings.strategy | one.strategy)


def _shards(messages: Messages, settings: Settings) -> dict[str, Messages]:
    dealt = {f"client-{client:03}": messages[client :: settings.clients] for client in range(settings.clients)}
    return {client: text_slice(shard, settings.shard_bytes, 0)[0] for client, shard in dealt.items()}
