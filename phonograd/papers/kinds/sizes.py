"""Models side by side: keystrokes that each saves users, in four states of it, beside what it costs."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

import phonograd
from phonograd.bench.phone_cost import saved_epoch
from phonograd.bench.predict import PredictBenchConfig, bench_predict
from phonograd.bench.results import FOLDER
from phonograd.device_runtime.base.documents import Positive, Record, parse
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.evaluation import keystroke_savings
from phonograd.papers.kinds.one_node import draw_users
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.users import Messages, part_of, read_users, text_slice

WAYS = ("alone", "own words")
WORSE = 3.0  # points
CORES = {"A55": "cortex-a55", "A76": "neoverse-n1"}  # by the names of bench.phone_cost.KERNELS

Person = tuple[Messages, Messages]  # what a user wrote before, and what they write then
# Makes the weights of a user who wrote these messages, in a folder; or gives those that all users have.
WeightsFor = Callable[[Messages, Path], Path]


class Settings(Record, frozen=True):
    """models: inputs, of which the others are compared with the first; those that are not given are left out. texts:
    inputs, each of users of one kind, and how many of them are measured: on text_bytes that follow as many. simulation:
    SimulationSettings by name, of other users' rounds, with each of the codecs; an epoch trains by them too.
    """

    models: tuple[str, ...]
    texts: dict[str, Positive]
    simulation: dict[str, Any]
    codecs: tuple[str, ...]


@dataclass(frozen=True)
class _Case:
    """One model, and users of one kind, of whom `people` are measured."""

    context: Context
    artifacts: phonograd.Artifacts
    users: Mapping[str, Messages]
    people: list[Person]
    name: str
    simulation: phonograd.SimulationSettings

    def save_keystrokes(self, weights_for: WeightsFor) -> dict[str, Any]:
        """Keystrokes saved of each person who is measured."""

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
            return dict(zip(WAYS, zip(*pool.map(measure, self.people), strict=True), strict=True))

    def train(self, earlier: Messages, place: Path) -> Path:
        """Train an epoch, as the user's phone does."""
        drawn, seed, out = self.simulation.output_sample, self.context.seed, place / "trained"
        one = phonograd.BackendOptions(threads=1)
        settings = phonograd.TrainSettings(seed=seed, output_sample=drawn, sample_seed=drawn and seed, options=one)
        rehearsal = self.context.optional("rehearsal")
        phonograd.train(self.artifacts, earlier, settings, rehearsal=rehearsal, out=out)
        return out

    def run_rounds(self, codec: str) -> dict[str, Any]:
        """Keystrokes saved after rounds, and bytes of each round's updates."""
        folder = self.context.folder(f"{self.name}, {codec}")
        record = phonograd.simulate(
            self.artifacts,
            {user: text for user, text in self.users.items() if part_of(user) == "rounds"},
            folder,
            msgspec.structs.replace(self.simulation, codec=codec),
            rehearsal=self.context.optional("rehearsal"),
            workers=self.context.workers,
        )
        weights = folder / "models" / f"{len(record.rounds)}.safetensors"
        return self.save_keystrokes(lambda *_: weights) | {"bytes up": [ended.bytes_up for ended in record.rounds]}


def run(settings: Settings, context: Context) -> Outcome:
    """Measure each model with the same users of each kind. Raises TextError for too few of them."""
    given = {name: path for name in settings.models if (path := context.optional(name)) is not None}
    models = {name: phonograd.open_artifacts(path) for name, path in given.items()}
    simulation = settings_of({**settings.simulation, "seed": context.seed, "test_users": 0}, {})
    rows: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, list[float]]] = {}
    for kind, count in settings.texts.items():
        users = read_users(context.input(kind))
        people = choose_people(users, count, simulation.text_bytes, context.seed)
        for place, (model, artifacts) in enumerate(models.items()):
            case = _Case(context, artifacts, users, people, f"{model}, {kind}", simulation)
            own = artifacts.path(WEIGHTS)
            states: dict[str, Callable[[], dict[str, Any]]] = {
                "as shipped": partial(case.save_keystrokes, lambda *_, own=own: own),
                "after an epoch": partial(case.save_keystrokes, case.train),
                **{f"after rounds, {codec}": partial(case.run_rounds, codec) for codec in settings.codecs},
            }
            for state, measure in states.items():
                row = f"{case.name}, {state}"
                context.progress(place, len(models), row)
                found = context.measure_once(row, measure)
                units[row] = {way: found[way] for way in WAYS}
                rows[row] = figures_of(units[row], units[f"{next(iter(models))}, {kind}, {state}"])
                rows[row] |= {"MB up a round": fmean(found["bytes up"]) / 1e6} if "bytes up" in found else {}
    costs = {
        model: context.measure_once(f"costs of {model}", partial(measure_costs, models[model])) for model in models
    }
    facts = {f"{model}: {fact}": value for model, found in costs.items() for fact, value in found.items()}
    return Outcome(rows, facts, units)


def choose_people(users: Mapping[str, Messages], count: int, text_bytes: int, seed: int) -> list[Person]:
    """Draw users of the table. Raises TextError for too few with enough text."""
    table = {user: text for user, text in users.items() if part_of(user) == "table"}
    people = []
    for user in draw_users(table, count, 2 * text_bytes, seed):
        earlier, _ = text_slice(table[user], text_bytes, 0)
        people.append((earlier, text_slice(table[user][len(earlier) :], text_bytes, 0)[0]))
    return people


def figures_of(saved: Mapping[str, list[float]], first: Mapping[str, list[float]]) -> dict[str, float]:
    """Percentiles over users, and how many are worse than with the first model."""
    found = {f"{way} p{p}, %": float(np.percentile(saved[way], p)) for way in WAYS for p in (10, 50, 90)}
    for way in WAYS:
        worse = [before - now > WORSE for before, now in zip(first[way], saved[way], strict=True)]
        found[f"{way}, users worse"] = sum(worse)
    return found


def measure_costs(artifacts: phonograd.Artifacts) -> dict[str, float]:
    """What a model in int8 is on one core here, and seconds of an epoch on phones' cores, where they are projected."""
    *_, int8 = bench_predict(artifacts.folder, PredictBenchConfig(threads=1), str)["ways"]
    found = {"MB in int8": int8["weight_bytes"] / 1e6, "ms a suggestion": int8["median_seconds"] * 1e3}
    counts = parse((FOLDER / "phone.json").read_bytes())
    for core, cpu in CORES.items():
        if (seconds := saved_epoch(counts, cpu, artifacts.manifest.model)) is not None:
            found[f"s an epoch on {core}"] = seconds
    return found
