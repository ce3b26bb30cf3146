"""Federated rounds from random weights: one text cut into a shard a client, or users' texts, one simulation a row."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Amount, Count, Positive, Record
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.device_runtime.text.messages import read_messages
from phonograd.papers.arms import Arm, arm_of
from phonograd.papers.kinds.simulated import by_user, last_ones, mean_of, run_of, settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.quality import Quality, spread
from phonograd.simulation.records import SimulationRecord
from phonograd.simulation.users import Messages, read_users, text_slice

LOST = 1e9  # a perplexity of a model that diverged: larger ones say no more


class Run(Record, frozen=True):
    """One simulation. model, training, simulation, strategy: settings that differ from the others'."""

    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


class Settings(Record, frozen=True):
    """model: its vocabulary is built from the text. clients: shards of the text of shard_bytes each: IID ones, whose
    messages are dealt out in turn, or `contiguous` ones; none: the users that are given, of whom each trains on
    shard_bytes a round. training, simulation, strategy: TrainingConfig, SimulationSettings and StrategySettings by
    name, for all runs. runs: by row.

    Clients that never train (`test_users`) are the test of M's tables, which have means of the last five evaluations.
    With `chosen` they are the validation, as J's: figures are of the general test (test_bytes of it), by the model that
    is best on it. target: a perplexity, for the rounds until it is reached: one more than there are if it never is.
    """

    model: LanguageModelConfig
    shard_bytes: Positive
    runs: dict[str, Run]
    clients: Count = 0
    contiguous: bool = False
    test_bytes: Count = 0
    chosen: bool = False
    target: Amount | None = None
    training: dict[str, Any] = field(default_factory=dict)
    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, each from the same random weights if its model is the same."""
    text = context.input("training-text")
    users = _clients(settings, text, context)
    test = (
        text_slice(read_messages(context.input("test-text")), settings.test_bytes, 0)[0] if settings.test_bytes else []
    )
    rows: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, list[float]]] = {}
    facts: dict[str, float] = {}
    runs: dict[str, str] = {}
    for place, (row, one) in enumerate(settings.runs.items()):
        artifacts = _artifacts(settings, one, text, context)
        record = phonograd.simulate(
            artifacts,
            users,
            context.folder(row),
            _simulation(settings, one, context.seed),
            general_test=test or None,
            workers=context.workers,
            progress=lambda done, total, note, row=row, place=place: context.progress(  # type: ignore[misc]
                place * total + done, len(settings.runs) * total, f"{row}: {note}"
            ),
        )
        rows[row], units[row] = _figures(record, settings)
        runs[row] = run_of(record)
        facts |= {f"{row}: tokens trained": sum(ended.tokens for ended in record.rounds)}
        facts |= {f"{row}: MB up": sum(ended.bytes_up for ended in record.rounds) / 1e6}
    return Outcome(rows, facts, units, runs)


def arms(settings: Settings) -> dict[str, Arm]:
    """What the rows' settings say. C: the share of the clients in a round; E: epochs; B: minibatch."""
    found = {}
    for row, one in settings.runs.items():
        simulation = _simulation(settings, one, 1)
        training = phonograd.TrainingConfig(**settings.training | one.training)
        quantities: dict[str, float] = {"E": simulation.epochs, "B": training.minibatch}
        if phones := settings.clients and settings.clients - simulation.test_users:
            quantities["C"] = simulation.clients_per_round / phones
        found[row] = arm_of(simulation.strategy, phones, quantities)
    return found


def _figures(record: SimulationRecord, settings: Settings) -> tuple[dict[str, float], dict[str, list[float]]]:
    points = {number: quality for number, quality in record.qualities.items() if number}
    if settings.chosen:
        best = min(points, key=lambda number: _pooled_perplexity(points[number].users))
        figures = _scores(_tests(points[best])) | {"best round": float(best)}
        ended = [points[best]]
    else:
        ended = last_ones(points)
        figures = mean_of([_scores(_tests(quality)) for quality in ended])
    if settings.target is not None:
        reached = [
            number for number, quality in points.items() if _pooled_perplexity(_tests(quality)) <= settings.target
        ]
        figures["rounds to the target"] = float(min(reached, default=len(record.rounds) + 1))
    last = record.rounds[-1]
    if last.epsilon is not None:
        figures["epsilon"] = last.epsilon
    of_clients = {} if settings.chosen else by_user(ended)
    return figures, {name.removeprefix("user "): values for name, values in of_clients.items()}


def _tests(quality: Quality) -> Sequence[Evaluation]:
    return [quality.general] if quality.general is not None else quality.users


def _pooled_perplexity(texts: Sequence[Evaluation]) -> float:
    found = spread(texts, "perplexity")
    if found is None:
        raise TextError("simulation: a test expected, which the figures are of; give test_bytes or test_users")
    return min(found.pooled, LOST)


def _scores(texts: Sequence[Evaluation]) -> dict[str, float]:
    figures = {"perplexity": _pooled_perplexity(texts)}
    for name, figure in (("top-1", "top1"), ("top-1 of paper M", "top1_with_unknown")):
        if found := spread(texts, figure):  # type: ignore[arg-type]
            figures |= {f"{name}, %": 100 * found.pooled, f"{name}, ± %": 100 * found.error}
    return figures


def _artifacts(settings: Settings, one: Run, text: Path, context: Context) -> phonograd.Artifacts:
    """The run's model with weights drawn by the seed; runs with the same model and training share it."""
    model = msgspec.structs.replace(settings.model, **one.model)
    training = phonograd.TrainingConfig(**settings.training | one.training)
    folder = context.work / "-".join(str(part) for part in (*msgspec.structs.astuple(model), *one.training.values()))
    if not (folder / "manifest.json").exists():
        words = folder.with_suffix(".txt")
        phonograd.build_vocabulary([text], model.vocabulary).write(words)
        weights = phonograd.seeded_weights(model, context.seed)
        phonograd.export_artifacts(weights, words, folder, training=training, shape=model)
    return phonograd.open_artifacts(folder)


def _simulation(settings: Settings, one: Run, seed: int) -> phonograd.SimulationSettings:
    chosen = {"test_users": 0, "text_bytes": settings.shard_bytes, "seed": seed}
    return settings_of(chosen | settings.simulation | one.simulation, settings.strategy | one.strategy)


def _clients(settings: Settings, text: Path, context: Context) -> dict[str, Messages]:
    if not settings.clients:
        return read_users(context.input("users"))
    messages, names = read_messages(text), [f"client-{client:05}" for client in range(settings.clients)]
    if settings.contiguous:
        left = iter(messages)
        return {name: list(_next_bytes(left, settings.shard_bytes)) for name in names}
    dealt = {name: messages[place :: settings.clients] for place, name in enumerate(names)}
    return {name: text_slice(shard, settings.shard_bytes, 0)[0] for name, shard in dealt.items()}


def _next_bytes(messages: Iterator[bytes], nbytes: int) -> Iterator[bytes]:
    while nbytes > 0:
        message = next(messages, None)
        if message is None:
            raise TextError("training text: too short for so many clients; use fewer `clients` or `shard_bytes`")
        nbytes -= len(message) + 1
        yield message
