"""Simulations side by side: the model after each measured round, or after the last one."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import ArtifactsError, TextError
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.folder import read_record
from phonograd.simulation.records import Quality, SimulationRecord

# Tokens of paper P's tests, in thousands: general and the users'. Its mean perplexity is over both.
_GENERAL, _USERS = 170, 200


class Run(Record, frozen=True):
    """One simulation. simulation, strategy: its settings that differ from the others'; rehearsal: whether phones mix in
    general text; folder: the input that may give a finished simulation's folder instead.
    """

    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)
    rehearsal: bool = True
    folder: str = ""


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; strategy: StrategySettings by name; runs: by row; curve:
    whether each measured round has a row.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    strategy: dict[str, Any] = field(default_factory=dict)
    curve: bool = False


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, or read those that were given."""
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {}
    for row, one in settings.runs.items():
        record = simulated(settings.simulation, settings.strategy, row, one, context)
        rows.setdefault("initial", _figures(record.before))
        measured = {ended.number: ended.quality for ended in record.rounds if ended.quality is not None}
        if settings.curve:
            rows |= {f"{row}, round {number}": _figures(quality) for number, quality in measured.items()}
        rows[row] = _figures(measured[max(measured)])
        facts |= {f"{row}: {fact}": value for fact, value in _facts(record).items()}
    return Outcome(rows, facts)


def simulated(
    simulation: Mapping[str, Any], strategy: Mapping[str, Any], row: str, one: Run, context: Context
) -> SimulationRecord:
    """The record of one simulation, run or given. simulation, strategy: settings by name. Raises ArtifactsError."""
    finished = context.optional(one.folder) if one.folder else None
    if finished is not None:
        return read_record(finished)
    try:
        chosen = phonograd.StrategySettings(**{**strategy, **one.strategy})
        merged = {**simulation, **one.simulation, "seed": context.seed}
        settings = phonograd.SimulationSettings(**merged, strategy=chosen)
    except (TypeError, ValueError) as error:
        raise ArtifactsError(f"settings of a simulation: {error}") from error
    return phonograd.simulate(
        context.input("artifacts"),
        context.input("users"),
        _folder(context.work, row),
        settings,
        rehearsal=context.input("rehearsal") if one.rehearsal else None,
        general_test=context.input("general-test"),
        workers=context.workers,
        progress=lambda done, total, note: context.progress(done, total, f"{row}: {note}"),
    )


def _folder(work: Path, row: str) -> Path:
    return work / "".join(letter if letter.isalnum() else "-" for letter in row)


def _figures(quality: Quality) -> dict[str, float]:
    general, users = quality.general, quality.users
    if general is None or users is None:
        raise TextError("simulation: general text and test users expected, which the figures are of; found one of them")
    figures = {"general perplexity": general.perplexity, "user perplexity": users.perplexity.mean}
    logs = _GENERAL * math.log(general.perplexity) + _USERS * math.log(users.perplexity.mean)
    figures |= {
        "mean perplexity": math.exp(logs / (_GENERAL + _USERS)),
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


def _facts(record: SimulationRecord) -> dict[str, float]:
    rounds = record.rounds
    return {
        "rounds": len(rounds),
        "tokens trained": sum(ended.tokens for ended in rounds),
        "users who train": record.users.training,
        "test users": record.users.testing,
        "phones whose text came again": sum(ended.repeated_texts for ended in rounds),
        "MB up": sum(ended.bytes_up for ended in rounds) / 1e6,
        "MB down": sum(ended.bytes_down for ended in rounds) / 1e6,
    }
