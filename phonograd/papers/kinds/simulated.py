"""Simulations side by side: the model after each measured round, or after the last ones."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from statistics import fmean, geometric_mean
from typing import Any

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import ArtifactsError, TextError
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.papers.arms import Arm, arm_of
from phonograd.papers.run import Context, Outcome
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.transfer.settings import GENERATED
from phonograd.simulation.quality import Quality, spread
from phonograd.simulation.records import SimulationRecord

LAST = 5  # evaluations
_CHANGES = ("user perplexity", "general perplexity")
# Thousands of tokens in paper P's tests: general text and the users'.
_GENERAL, _USERS = 170, 200


class Run(Record, frozen=True):
    """One simulation. simulation, strategy: its settings that differ from the others'; transfer: TransferSettings by
    name, where `general` names an input; rehearsal: whether phones mix in general text; artifacts: the input that gives
    them.
    """

    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    transfer: dict[str, Any] = field(default_factory=dict)
    rehearsal: bool = True
    artifacts: str = "artifacts"


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; strategy: StrategySettings by name; runs: by row; curve:
    whether each measured round has a row; downloads: whether rows have what phones downloaded, and for what gain.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    strategy: dict[str, Any] = field(default_factory=dict)
    curve: bool = False
    downloads: bool = False


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, or read those that were given."""
    records = {row: simulate_row(settings, row, one, context) for row, one in settings.runs.items()}
    rows: dict[str, dict[str, float]] = {}
    units: dict[str, dict[str, list[float]]] = {}
    facts: dict[str, float] = {}
    for row, record in records.items():
        points = record.qualities
        first = points.pop(0)
        rows.setdefault("initial", figures_of(first))
        units.setdefault("initial", by_user([first]))
        if settings.curve:
            rows |= {f"{row}, round {number}": figures_of(quality) for number, quality in points.items()}
        ended = last_ones(points)
        rows[row] = mean_of([figures_of(quality) for quality in ended])
        rows[row] |= _gains(rows["initial"], rows[row])
        units[row] = by_user(ended)
        facts |= {f"{row}: {fact}": value for fact, value in _facts(record, max(points)).items()}
        if settings.downloads:
            rows[row] |= _downloads(record, rows[row])
    return Outcome(rows, facts, units, {row: run_of(record) for row, record in records.items()})


def arms(settings: Settings) -> dict[str, Arm]:
    """What the rows' settings say; phones are the users that are given, whose number they don't say."""
    found = {}
    for row, one in settings.runs.items():
        simulation = settings_of(settings.simulation | one.simulation, settings.strategy | one.strategy)
        cycles = one.transfer.get("transfer_cycles", 1)
        quantities = {"round": simulation.rounds, "cycle": cycles, "N": simulation.deploy_every}
        found[row] = arm_of(simulation.strategy, simulation.clients_per_round, quantities)
    return found


def run_of(record: SimulationRecord) -> str:
    """The hash of a simulation's settings, model and texts."""
    return sha256(json.dumps([record.job, len(record.rounds)], sort_keys=True).encode()).hexdigest()


def last_ones(points: Mapping[int, Quality]) -> list[Quality]:
    """The last evaluations, whose mean is what a simulation ends with: a single round is noisy."""
    return [points[number] for number in sorted(points)[-LAST:]]


def mean_of(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each figure, geometric for perplexities."""
    return {name: _mean(name)([one[name] for one in figures]) for name in figures[0]}


def _mean(figure: str) -> Callable[[Sequence[float]], float]:
    return geometric_mean if "perplexity" in figure and "%" not in figure and "±" not in figure else fmean


def by_user(evaluations: Sequence[Quality]) -> dict[str, list[float]]:
    """Each test user's figures, the mean of the evaluations."""
    users = list(zip(*(quality.users for quality in evaluations), strict=True))
    of_users = [mean_of([_of_text(one) for one in of_user]) for of_user in users]
    return {name: [one[name] for one in of_users] for name in (of_users[0] if of_users else {})}


def _of_text(text: Evaluation) -> dict[str, float]:
    figures = {"user perplexity": text.perplexity, "user top-1, %": 100 * text.top1}
    return figures if text.kss is None else figures | {"user KSS, %": 100 * text.kss}


def simulate_row(settings: Settings, row: str, one: Run, context: Context) -> SimulationRecord:
    """The record of one simulation. Raises ArtifactsError."""
    simulation = settings.simulation | one.simulation | {"seed": context.seed}
    return phonograd.simulate(
        context.input(one.artifacts),
        context.input("users"),
        context.folder(row),
        settings_of(simulation, settings.strategy | one.strategy, _transfer(one, context)),
        rehearsal=context.input("rehearsal") if one.rehearsal else None,
        general_test=context.input("general-test"),
        workers=context.workers,
        progress=lambda done, total, note: context.progress(done, total, f"{row}: {note}"),
    )


def settings_of(
    simulation: Mapping[str, Any], strategy: Mapping[str, Any], transfer: Mapping[str, Any] | None = None
) -> phonograd.SimulationSettings:
    """The settings that an experiment gives by name. Raises ArtifactsError."""
    try:
        of_server = phonograd.StrategySettings(**strategy), phonograd.TransferSettings(**transfer or {})
        masked = {"masked": MaskedSettings(**simulation["masked"])} if "masked" in simulation else {}
        return phonograd.SimulationSettings(**{**simulation, **masked}, strategy=of_server[0], transfer=of_server[1])
    except (TypeError, ValueError) as error:
        raise ArtifactsError(f"settings of a simulation: {error}") from error


def _transfer(one: Run, context: Context) -> dict[str, Any]:
    general = one.transfer.get("general", GENERATED)
    named = {} if general == GENERATED else {"general": str(context.input(general))}
    return {**one.transfer, **named}


def figures_of(quality: Quality) -> dict[str, float]:
    """Scores by the names that tables have. Raises TextError without general text or test users."""
    if quality.general is None or not quality.users:
        raise TextError("simulation: general text and test users expected, which the figures are of; found one of them")
    return figures_on([quality.general], quality.users)


def figures_on(general: Sequence[Evaluation], users: Sequence[Evaluation]) -> dict[str, float]:
    """Scores on general text, of one model or of several, and on users' texts."""
    figures: dict[str, float] = {}
    for whose, texts in (("general", general), ("user", users)):
        if found := spread(texts, "perplexity"):
            figures |= {f"{whose} perplexity": found.pooled, f"{whose} perplexity, ±": found.error}
            if whose == "user":
                figures |= {"user perplexity, mean of users": found.mean}
                figures |= {"user perplexity, p10": found.p10, "user perplexity, p90": found.p90}
        if kss := spread(texts, "kss"):
            figures |= {f"{whose} KSS, %": 100 * kss.pooled, f"{whose} KSS, ± %": 100 * kss.error}
            if whose == "user":
                figures |= {"user KSS, p10": 100 * kss.p10, "user KSS, p90": 100 * kss.p90}
    return figures | {"mean perplexity": mean_perplexity(figures["general perplexity"], figures["user perplexity"])}


def mean_perplexity(general: float, users: float) -> float:
    """Paper P's mean perplexity, over both its test texts, of a perplexity on each."""
    nats = _GENERAL * math.log(general) + _USERS * math.log(users)
    return math.exp(nats / (_GENERAL + _USERS))


def _gains(first: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """What rounds changed, in the paper's terms: % of the users' perplexity, and points of keystroke savings."""
    gains = {f"{name}, change in %": 100 * (last[name] / first[name] - 1) for name in _CHANGES}
    for figure in ("user KSS, %", "general KSS, %"):
        if figure in last:
            gains[f"{figure.removesuffix(', %')}, points gained"] = last[figure] - first[figure]
    return gains


def _downloads(record: SimulationRecord, gains: Mapping[str, float]) -> dict[str, float]:
    """What phones sent and downloaded, and for each % and point of `gains`; those alone that there are."""
    gained = {
        "% less user perplexity": -gains["user perplexity, change in %"],
        "point of user KSS": gains.get("user KSS, points gained", 0.0),
    }
    up, down = (sum(getattr(ended, f"bytes_{way}") for ended in record.rounds) / 1e6 for way in ("up", "down"))
    figures = {"MB up a round": up / len(record.rounds), "MB down a round": down / len(record.rounds)}
    if links := [ended.link_bytes for ended in record.rounds if ended.link_bytes is not None]:
        figures["MB a link"] = fmean(links) / 1e6
    return figures | {f"MB down a {of}": down / gain for of, gain in gained.items() if gain > 0}


def _facts(record: SimulationRecord, last: int) -> dict[str, float]:
    """About the rounds up to the last one that is shown."""
    rounds = record.rounds[:last]
    return {
        "rounds": len(rounds),
        "tokens trained": sum(ended.tokens for ended in rounds),
        "users who train": record.users.training,
        "test users": record.users.testing,
        "phones whose text came again": sum(ended.repeated_texts for ended in rounds),
        "MB up": sum(ended.bytes_up for ended in rounds) / 1e6,
        "MB down": sum(ended.bytes_down for ended in rounds) / 1e6,
    }
