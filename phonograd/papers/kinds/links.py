"""What links save: the bytes of following rounds, and what lossy links cost in perplexity."""

from statistics import fmean
from typing import Any

import phonograd
from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.kinds.simulated import Run, figures_of, measured, simulated
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import SimulationRecord

WHOLE, LOSSLESS, LOSSY = "whole models", "lossless links", "lossy links"
MEAN = f"{LOSSY}, mean of the measured rounds"
_COMPARED = ("general perplexity", "user perplexity", "mean perplexity")


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for both runs; lossless, lossy: the runs, whose settings say how they
    publish; link_rounds: rounds that run to measure lossless links, if the simulation that was given has none.
    """

    simulation: dict[str, Any]
    lossless: Run
    lossy: Run
    link_rounds: int = 3


def run(settings: Settings, context: Context) -> Outcome:
    """Run both simulations, or read those that were given. Raises StateError if no round of one has made a model."""
    exact = simulated(settings.simulation, {}, LOSSLESS, settings.lossless, context)
    lossy = simulated(settings.simulation, {}, LOSSY, settings.lossy, context)
    linked = exact if "publish" in exact.job else _first_rounds(settings, context)
    model = phonograd.open_artifacts(context.input("artifacts")).path("weights.safetensors").stat().st_size
    rows: dict[str, dict[str, float]] = {"initial": figures_of(exact.before), WHOLE: _down(model, model)}
    facts: dict[str, float] = {}
    for row, record, with_links in ((LOSSLESS, exact, linked), (LOSSY, lossy, lossy)):
        points = {number: _after(record, number, exact) for number in measured(record)}
        rows |= {f"{row}, round {number}": figures for number, figures in points.items()}
        rows[row] = points[max(points)] | _down(_mean_link(with_links, model), model)
        facts |= {f"{row}: {fact}": value for fact, value in _facts(record, with_links).items()}
    # Of the lossy run. Each round has other phones, and perplexities follow them: the mean says more than the last.
    rows[MEAN] = {name: fmean(figures[name] for figures in points.values()) for name in map(_above, _COMPARED)}
    return Outcome(rows, facts)


def _first_rounds(settings: Settings, context: Context) -> SimulationRecord:
    """The first rounds of the lossless simulation, for their links alone."""
    few = {**settings.simulation, "rounds": settings.link_rounds, "kss": False}
    return simulated(few, {}, f"{LOSSLESS}, first rounds", Run(settings.lossless.simulation), context)


def _mean_link(record: SimulationRecord, model: int) -> float:
    """Bytes to get from a round's model to the next one, the mean; a link that is no smaller is the whole model."""
    closed = [ended for ended in record.rounds if ended.outcome == "closed"]
    if not closed:
        raise StateError("a simulation with a model after some round expected; all rounds failed")
    return fmean(model if ended.link_bytes is None else ended.link_bytes for ended in closed)


def _down(nbytes: float, model: int) -> dict[str, float]:
    return {"MB down a round": nbytes / 1e6, "times fewer bytes": model / nbytes}


def _after(record: SimulationRecord, number: int, exact: SimulationRecord) -> dict[str, float]:
    """The figures after a round; of lossy links, beside those of lossless ones."""
    figures = figures_of(measured(record)[number])
    if record is not exact:
        lossless = figures_of(measured(exact)[number])
        figures |= {_above(name): 100 * (figures[name] / lossless[name] - 1) for name in _COMPARED}
    return figures | {"left out, % of a round's change": 100 * (record.rounds[number - 1].left_out or 0.0)}


def _above(name: str) -> str:
    return f"{name}, % above lossless"


def _facts(record: SimulationRecord, with_links: SimulationRecord) -> dict[str, float]:
    phones = sum(ended.phones for ended in record.rounds)
    down = sum(ended.bytes_down for ended in record.rounds)
    return {
        "rounds": len(record.rounds),
        "rounds whose links were measured": len(with_links.rounds),
        "MB that a phone downloaded to take part": down / phones / 1e6,
    }
