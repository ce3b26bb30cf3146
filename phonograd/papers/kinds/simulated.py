"""Simulations side by side: the model after each measured round, or after the last one."""

import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import ArtifactsError, StateError, TextError
from phonograd.papers.run import Context, Outcome
from phonograd.server_agg.transfer.settings import GENERATED
from phonograd.simulation.folder import job_of, read_record
from phonograd.simulation.records import Quality, SimulationRecord

# Thousands of tokens in paper P's tests: general text and the users'.
_GENERAL, _USERS = 170, 200
_NO_TEXT = sha256().hexdigest()  # as a simulation names rehearsal text that it does not have


class Run(Record, frozen=True):
    """One simulation. simulation, strategy: its settings that differ from the others'; transfer: TransferSettings by
    name, where `general` names an input; rehearsal: whether phones mix in general text; folder: the input that may give
    a finished simulation's folder instead.
    """

    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    transfer: dict[str, Any] = field(default_factory=dict)
    rehearsal: bool = True
    folder: str = ""


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; strategy: StrategySettings by name; runs: by row; curve:
    whether each measured round has a row, up to the last one that all runs have.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    strategy: dict[str, Any] = field(default_factory=dict)
    curve: bool = False


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, or read those that were given."""
    records = {
        row: simulated(settings.simulation, settings.strategy, row, one, context, unfinished=settings.curve)
        for row, one in settings.runs.items()
    }
    last = min(max(measured(record)) for record in records.values())
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {}
    for row, record in records.items():
        points = measured(record)
        rows.setdefault("initial", figures_of(record.before))
        if settings.curve:
            points = {number: quality for number, quality in points.items() if number <= last}
            rows |= {f"{row}, round {number}": figures_of(quality) for number, quality in points.items()}
        rows[row] = figures_of(points[max(points)]) | _gains(record.before, points[max(points)])
        facts |= {f"{row}: {fact}": value for fact, value in _facts(record, max(points)).items()}
    return Outcome(rows, facts)


def measured(record: SimulationRecord) -> dict[int, Quality]:
    """The rounds whose models were evaluated."""
    return {ended.number: ended.quality for ended in record.rounds if ended.quality is not None}


def simulated(
    simulation: Mapping[str, Any],
    strategy: Mapping[str, Any],
    row: str,
    one: Run,
    context: Context,
    unfinished: bool = False,
) -> SimulationRecord:
    """The record of one simulation, run or given. simulation, strategy: settings by name; unfinished: whether one
    that is given may have fewer rounds. Raises ArtifactsError, StateError.
    """
    merged = {**simulation, **one.simulation, "seed": context.seed}
    settings = settings_of(merged, {**strategy, **one.strategy}, _transfer(one, context))
    given = context.optional(one.folder) if one.folder else None
    if given is not None:
        return _given(given, settings, one.rehearsal, unfinished)
    return phonograd.simulate(
        context.input("artifacts"),
        context.input("users"),
        context.folder(row),
        settings,
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
        return phonograd.SimulationSettings(**simulation, strategy=of_server[0], transfer=of_server[1])
    except (TypeError, ValueError) as error:
        raise ArtifactsError(f"settings of a simulation: {error}") from error


def _transfer(one: Run, context: Context) -> dict[str, Any]:
    general = one.transfer.get("general", GENERATED)
    named = {} if general == GENERATED else {"general": str(context.input(general))}
    return {**one.transfer, **named}


def _given(folder: Path, wanted: phonograd.SimulationSettings, rehearsal: bool, unfinished: bool) -> SimulationRecord:
    """A simulation that ran before. Raises StateError if it is another one or, unless `unfinished`, too short."""
    record = read_record(folder)
    job = {**job_of(phonograd.SimulationSettings()), **record.job}  # settings that its version did not have: defaults
    for name, value in job_of(wanted).items():
        if job[name] != value:
            raise StateError(f"{folder}: a simulation with {name} {value} expected, found {job[name]}")
    if (record.job["rehearsal"] == _NO_TEXT) == rehearsal:
        raise StateError(f"{folder}: a simulation with{'' if rehearsal else 'out'} rehearsal expected, found the other")
    if not measured(record) or (len(record.rounds) < wanted.rounds and not unfinished):
        raise StateError(f"{folder}: {wanted.rounds} rounds expected, found {len(record.rounds)}; let it finish")
    return record if unfinished else msgspec.structs.replace(record, rounds=record.rounds[: wanted.rounds])


def figures_of(quality: Quality) -> dict[str, float]:
    """Scores by the names that tables have. Raises TextError without general text or test users."""
    general, users = quality.general, quality.users
    if general is None or users is None:
        raise TextError("simulation: general text and test users expected, which the figures are of; found one of them")
    figures = {"general perplexity": general.perplexity, "user perplexity": users.perplexity.mean}
    figures |= {
        "mean perplexity": mean_perplexity(general.perplexity, users.perplexity.mean),
        "user perplexity, p10": users.perplexity.p10,
        "user perplexity, p90": users.perplexity.p90,
    }
    if general.kss is not None and users.kss is not None:
        figures |= {
            "general KSS, %": 100 * general.kss,
            "user KSS, %": 100 * users.kss.mean,
            "user KSS, p10": 100 * users.kss.p10,
            "user KSS, p90": 100 * users.kss.p90,
        }
    return figures


def mean_perplexity(general: float, users: float) -> float:
    """Paper P's mean perplexity, over both its test texts, of a perplexity on each."""
    nats = _GENERAL * math.log(general) + _USERS * math.log(users)
    return math.exp(nats / (_GENERAL + _USERS))


def _gains(before: Quality, after: Quality) -> dict[str, float]:
    """What rounds changed, in the paper's terms: % of the users' perplexity, and points of keystroke savings."""
    first, last = figures_of(before), figures_of(after)
    gains = {"user perplexity, change in %": 100 * (last["user perplexity"] / first["user perplexity"] - 1)}
    for figure in ("user KSS, %", "general KSS, %"):
        if figure in last:
            gains[f"{figure.removesuffix(', %')}, points gained"] = last[figure] - first[figure]
    return gains


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
