"""What codecs cost: the bytes of simulated rounds until new users' perplexity has fallen to a target."""

from itertools import accumulate
from typing import Any

import msgspec
from msgspec import field

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.kinds.simulated import (
    Run,
    by_user,
    evaluated_rounds,
    figures_of,
    last_ones,
    mean_of,
    run_of,
    simulate_row,
)
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import SimulationRecord


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; runs: by row; same_models: rows whose models are those of
    another row, because both codecs are lossless: only their first round runs; user_perplexity: the target.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    user_perplexity: float
    same_models: dict[str, str] = field(default_factory=dict)


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, or read those that were given. A run that misses the target has no figures of it.

    Raises StateError if the models of `same_models` differ.
    """
    records = {}
    for row, one in settings.runs.items():
        simulation = settings.simulation | ({"rounds": 1} if row in settings.same_models else {})
        records[row] = simulate_row(simulation, {}, row, one, context)
    runs = {row: run_of(record) for row, record in records.items()}
    for row, other in settings.same_models.items():
        records[row] = _with_bytes_of(records[other], records[row], f"{row} and {other}")
    rows: dict[str, dict[str, float]] = {}
    for row, record in records.items():
        rows |= {f"{row}, round {number}": figures for number, figures in _points(record).items()}
        rows[row] = _last(record) | _until(record, settings.user_perplexity)
    facts = {f"{row}: rounds": float(len(record.rounds)) for row, record in records.items()}
    units = {
        row: by_user(last_ones(evaluated_rounds(record)))
        | {"MB up in a round": [ended.bytes_up / 1e6 for ended in record.rounds]}
        for row, record in records.items()
    }
    return Outcome(rows, facts, units, runs)


def _with_bytes_of(record: SimulationRecord, first: SimulationRecord, rows: str) -> SimulationRecord:
    """The record as if each phone had uploaded as much as in the round `first`, whose update has the size of all."""
    round_ = first.rounds[0]
    if round_.model_sha256 != record.rounds[0].model_sha256:
        raise StateError(f"{rows}: the same model expected after round 1, found two")
    each = round_.bytes_up // round_.phones
    rounds = [msgspec.structs.replace(ended, bytes_up=each * ended.phones) for ended in record.rounds]
    return msgspec.structs.replace(record, rounds=tuple(rounds))


def _last(record: SimulationRecord) -> dict[str, float]:
    rounds = record.rounds
    figures = {
        "MB up in a round": sum(ended.bytes_up for ended in rounds) / len(rounds) / 1e6,
        "MB down in a round": sum(ended.bytes_down for ended in rounds) / len(rounds) / 1e6,
    }
    ended = mean_of([figures_of(quality) for quality in last_ones(evaluated_rounds(record))])
    return figures | {
        name: ended[name] for name in ("user perplexity", "general perplexity", "user KSS, %") if name in ended
    }


def _points(record: SimulationRecord) -> dict[int, dict[str, float]]:
    up = list(accumulate(ended.bytes_up for ended in record.rounds))
    down = list(accumulate(ended.bytes_down for ended in record.rounds))
    return {
        ended.number: {
            "MB up so far": up[ended.number - 1] / 1e6,
            "MB down so far": down[ended.number - 1] / 1e6,
            "user perplexity": figures_of(ended.quality)["user perplexity"],
        }
        for ended in record.rounds
        if ended.quality is not None
    }


def _until(record: SimulationRecord, target: float) -> dict[str, float]:
    for number, point in _points(record).items():
        if point["user perplexity"] <= target:
            bytes_ = {f"MB {way} to the target": point[f"MB {way} so far"] for way in ("up", "down")}
            return {"rounds to the target": number, **bytes_}
    return {}
