"""What links save: the bytes of following rounds, and what lossy links cost in perplexity."""

from statistics import fmean
from typing import Any

import phonograd
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.kinds.simulated import (
    LAST,
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

WHOLE, LOSSLESS, LOSSY = "whole models", "lossless links", "lossy links"
FEWER, LEFT_OUT = "times fewer bytes", "left out, % of a round's change"
_COMPARED = ("general perplexity", "user perplexity", "mean perplexity")


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for both runs; lossless, lossy: the runs, whose settings say how they
    publish.
    """

    simulation: dict[str, Any]
    lossless: Run
    lossy: Run


def run(settings: Settings, context: Context) -> Outcome:
    """Run both simulations, or read those that were given. Raises StateError if no round of one has made a model."""
    exact = simulate_row(settings.simulation, {}, LOSSLESS, settings.lossless, context)
    lossy = simulate_row(settings.simulation, {}, LOSSY, settings.lossy, context)
    model = phonograd.open_artifacts(context.input("artifacts")).path("weights.safetensors").stat().st_size
    rows: dict[str, dict[str, float]] = {"initial": figures_of(exact.before), WHOLE: _down(model, model)}
    facts: dict[str, float] = {}
    for row, record in ((LOSSLESS, exact), (LOSSY, lossy)):
        points = {number: _after(record, number, exact) for number in evaluated_rounds(record)}
        rows |= {f"{row}, round {number}": figures for number, figures in points.items()}
        rows[row] = mean_of([points[number] for number in sorted(points)[-LAST:]])
        rows[row] |= _down(fmean(_links(record, model)), model)
        facts |= {f"{row}: {fact}": value for fact, value in _facts(record).items()}
    records = {LOSSLESS: exact, LOSSY: lossy}
    units = {row: _units(record, exact, model) for row, record in records.items()}
    return Outcome(rows, facts, units, {row: run_of(record) for row, record in records.items()})


def _units(record: SimulationRecord, exact: SimulationRecord, model: int) -> dict[str, list[float]]:
    users, theirs = (by_user(last_ones(evaluated_rounds(one))) for one in (record, exact))
    name = "user perplexity"
    above = [100 * (ours / lossless - 1) for ours, lossless in zip(users[name], theirs[name], strict=True)]
    left_out = [100 * (ended.left_out or 0.0) for ended in record.rounds]
    links = [model / link for link in _links(record, model)]
    return users | {_above(name): above, FEWER: links, LEFT_OUT: left_out}


def _links(record: SimulationRecord, model: int) -> list[int]:
    """Bytes to get from each round's model to the next one; a link that is no smaller is the whole model."""
    rounds = [one for one in record.rounds if one.outcome == "closed"]
    if not rounds:
        raise StateError("a simulation with a model after some round expected; all rounds failed")
    return [model if one.link_bytes is None else one.link_bytes for one in rounds]


def _down(nbytes: float, model: int) -> dict[str, float]:
    return {"MB down a round": nbytes / 1e6, FEWER: model / nbytes}


def _after(record: SimulationRecord, number: int, exact: SimulationRecord) -> dict[str, float]:
    figures = figures_of(evaluated_rounds(record)[number])
    if record is not exact:
        lossless = figures_of(evaluated_rounds(exact)[number])
        figures |= {_above(name): 100 * (figures[name] / lossless[name] - 1) for name in _COMPARED}
    return figures | {LEFT_OUT: 100 * (record.rounds[number - 1].left_out or 0.0)}


def _above(name: str) -> str:
    return f"{name}, % above lossless"


def _facts(record: SimulationRecord) -> dict[str, float]:
    phones = sum(ended.phones for ended in record.rounds)
    down = sum(ended.bytes_down for ended in record.rounds)
    return {
        "rounds": len(record.rounds),
        "MB that a phone downloaded to take part": down / phones / 1e6,
    }
