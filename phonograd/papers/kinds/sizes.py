"""Models side by side: keystrokes that each saves users, in four states of it, beside what it costs."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from msgspec import field

import phonograd
from phonograd.bench.measuring import in_fresh_process, peak_rss_bytes
from phonograd.bench.phone_cost import saved_epoch
from phonograd.bench.predict import PredictBenchConfig, bench_predict
from phonograd.bench.results import FOLDER
from phonograd.device_runtime.base.documents import Positive, Record, parse
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.evaluation import keystroke_savings
from phonograd.papers.kinds.one_node import draw_users
from phonograd.papers.kinds.simulated import Run, settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.users import Messages, part_of, read_users, text_slice

WAYS = ("alone", "own words")
SHIPPED = "as shipped"
WORSE = 3.0  # points
ONE_THREAD = phonograd.BackendOptions(threads=1)
CORES = {"A55": "cortex-a55", "A76": "neoverse-n1"}  # by the names of bench.phone_cost.KERNELS

Person = tuple[Messages, Messages]  # what a user wrote before, and what they write then
# Makes the weights of a user who wrote these messages, in a folder; or gives those that all users have.
WeightsFor = Callable[[Messages, Path], Path]


class Settings(Record, frozen=True):
    """models: inputs, of which the others are compared with the first; those that are not given are left out. texts:
    inputs, each of users of one kind, and how many of them are measured, on written_bytes behind text_bytes.
    simulation: SimulationSettings by name; rounds: what differs in each row's rounds, in which users of all kinds take
    part who wrote least_bytes; without rows there are none, and no epoch of the user's own.
    """

    models: tuple[str, ...]
    texts: dict[str, Positive]
    simulation: dict[str, Any]
    rounds: dict[str, Run] = field(default_factory=dict)
    least_bytes: Positive = 1
    written_bytes: Positive = 1000


@dataclass(frozen=True)
class _Case:
    """One model, and the users whose phones take part in rounds."""

    context: Context
    artifacts: phonograd.Artifacts
    name: str
    simulation: Mapping[str, Any]
    fleet: Mapping[str, Messages]

    def save_keystrokes(self, people: Sequence[Person], weights_for: WeightsFor) -> dict[str, Any]:
        """Keystrokes saved of each person."""

        def measure(person: Person) -> tuple[float, float]:
            earlier, written = person
            with TemporaryDirectory(dir=self.context.work) as place:
                int8, vocabulary = Path(place) / "int8", phonograd.Vocabulary.load(self.artifacts.path(VOCABULARY))
                phonograd.quantize(self.artifacts, int8, weights=weights_for(earlier, Path(place)))
                with (
                    phonograd.PersonalWords() as words,
                    phonograd.open_predictor(self.artifacts, weights=int8) as model,
                ):
                    alone, _ = keystroke_savings(model, vocabulary, written, learn=False)
                    model.reset()
                    model.use(words)
                    model.learn(b"\n".join([*earlier, b""]).decode("utf-8", "replace"))
                    own, _ = keystroke_savings(model, vocabulary, written, learn=True)
            return 100 * alone, 100 * own

        with ThreadPoolExecutor(self.context.workers) as pool:
            return dict(zip(WAYS, zip(*pool.map(measure, people), strict=True), strict=True))

    def train(self, earlier: Messages, place: Path) -> Path:
        """Train an epoch, as the user's phone does."""
        drawn, seed, out = self.simulation.get("output_sample"), self.context.seed, place / "trained"
        settings = phonograd.TrainSettings(
            seed=seed, output_sample=drawn, sample_seed=drawn and seed, options=ONE_THREAD
        )
        rehearsal = self.context.optional("rehearsal")
        phonograd.train(self.artifacts, earlier, settings, rehearsal=rehearsal, out=out)
        return out

    def run_rounds(self, row: str, one: Run, people: Sequence[Person]) -> dict[str, Any]:
        """Keystrokes saved after rounds, and bytes of each round's updates."""
        folder = self.context.folder(f"{self.name}, {row}")
        record = phonograd.simulate(
            self.artifacts,
            self.fleet,
            folder,
            settings_of({**self.simulation, **one.simulation}, one.strategy),
            rehearsal=self.context.optional("rehearsal"),
            workers=self.context.workers,
        )
        weights = folder / "models" / f"{len(record.rounds)}.safetensors"
        saved = self.save_keystrokes(people, lambda *_: weights)
        return saved | {"bytes up": [ended.bytes_up for ended in record.rounds]}


def run(settings: Settings, context: Context) -> Outcome:
    """Measure each model with the same users of each kind. Raises TextError for too few of them."""
    given = {name: path for name in settings.models if (path := context.optional(name)) is not None}
    models = {name: phonograd.open_artifacts(path) for name, path in given.items()}
    simulation = {**settings.simulation, "seed": context.seed, "test_users": 0}
    text_bytes = settings_of(simulation, {}).text_bytes
    users = {kind: read_users(context.input(kind)) for kind in settings.texts}
    people = {
        kind: choose_people(users[kind], count, text_bytes, settings.written_bytes)
        for kind, count in settings.texts.items()
    }
    fleet = {
        user: text
        for of_kind in users.values()
        for user, text in of_kind.items()
        if part_of(user) == "rounds" and sum(len(message) + 1 for message in text) >= settings.least_bytes
    }
    every_seed = replace(context, work=context.shared)
    rows: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, list[float]]] = {}
    for place, (model, artifacts) in enumerate(models.items()):
        case = _Case(context, artifacts, model, simulation, fleet)
        own = artifacts.path(WEIGHTS)
        digest = sha256_of_file(own)
        states: dict[str, Callable[[list[Person]], dict[str, Any]]] = {
            SHIPPED: partial(case.save_keystrokes, weights_for=lambda *_, own=own: own)
        }
        if settings.rounds:
            states["after an epoch"] = partial(case.save_keystrokes, weights_for=case.train)
        for name, one in settings.rounds.items():
            states[f"after rounds, {name}"] = partial(case.run_rounds, name, one)
        for state, measure in states.items():
            for kind, of_kind in people.items():
                row = f"{model}, {kind}, {state}"
                context.progress(place, len(models), row)
                # As shipped nothing is drawn: once for all seeds that are given these weights.
                place_of, part = (every_seed, f"{row}, {digest}") if state == SHIPPED else (context, row)
                found = place_of.measure_once(part, partial(measure, of_kind))
                units[row] = {way: found[way] for way in WAYS}
                rows[row] = figures_of(units[row], units[f"{next(iter(models))}, {kind}, {state}"])
                rows[row] |= {"MB up a round": fmean(found["bytes up"]) / 1e6} if "bytes up" in found else {}
    costs = {
        model: every_seed.measure_once(f"costs of {model}", partial(measure_costs, models[model])) for model in models
    }
    facts = {f"{model}: {fact}": value for model, found in costs.items() for fact, value in found.items()}
    return Outcome(rows, facts, units)


def choose_people(users: Mapping[str, Messages], count: int, text_bytes: int, written_bytes: int) -> list[Person]:
    """Draw users of the table, always the same. Raises TextError for too few with enough text."""
    table = {user: text for user, text in users.items() if part_of(user) == "table"}
    people = []
    for user in draw_users(table, count, text_bytes + written_bytes, 1):
        earlier, _ = text_slice(table[user], text_bytes, 0)
        people.append((earlier, text_slice(table[user][len(earlier) :], written_bytes, 0)[0]))
    return people


def figures_of(saved: Mapping[str, list[float]], first: Mapping[str, list[float]]) -> dict[str, float]:
    """Percentiles over users; the median of the points by which each is ahead of the first model, and how many users
    are worse than with it.
    """
    found = {f"{way} p{p}, %": float(np.percentile(saved[way], p)) for way in WAYS for p in (10, 50, 90)}
    for way in WAYS:
        ahead = np.subtract(saved[way], first[way])
        found[f"{way} ahead p50, %"] = float(np.median(ahead))
        found[f"{way}, users worse"] = int((ahead < -WORSE).sum())
    return found


def measure_costs(artifacts: phonograd.Artifacts) -> dict[str, float]:
    """What a model is on one core here, and seconds of an epoch on phones' cores, where they are projected."""
    *_, int8 = bench_predict(artifacts.folder, PredictBenchConfig(threads=1), str)["ways"]
    found = {"MB in int8": int8["weight_bytes"] / 1e6, "ms a suggestion": int8["median_seconds"] * 1e3}
    found["MB of memory, training"] = in_fresh_process(_memory_of_a_step, artifacts.folder) / 1e6
    counts = parse((FOLDER / "phone.json").read_bytes())
    for core, cpu in CORES.items():
        if (seconds := saved_epoch(counts, cpu, artifacts.manifest.model)) is not None:
            found[f"s an epoch on {core}"] = seconds
    return found


def _memory_of_a_step(folder: Path) -> int:
    """Bytes at most, of weights read and memory taken, by which a process grows that trains one step on one thread."""
    artifacts, settings = phonograd.open_artifacts(folder), phonograd.TrainSettings(seed=0, options=ONE_THREAD)
    training = artifacts.manifest.training
    words = phonograd.Vocabulary.load(artifacts.path(VOCABULARY)).words[: training.minibatch * training.bptt]
    load_library()
    before = peak_rss_bytes()
    phonograd.train(artifacts, [b" ".join(words)], settings)
    return peak_rss_bytes() - before
