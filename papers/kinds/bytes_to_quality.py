"""What codecs cost: the bytes of simulated rounds until new users' perplexity has fallen to a target."""

from typing import Any

from msgspec import field

from phonograd.device_runtime.base.documents import Record
from phonograd.papers.kinds.simulated import Run, simulated
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import SimulationRecord


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; runs: by row; user_perplexity: the target."""

    simulation: dict[str, Any]
    runs: dict[str, Run]
    user_perplexity: float
    strategy: dict[str, Any] = field(default_factory=dict)


def run(settings: Settings, context: Context) -> Outcome:
    """Run the simulations, or read those that were given. A run that misses the target has no figures of it."""
    rows, facts = {}, {}
    for row, one in settings.runs.items():
        record = simulated(settings.simulation, settings.strategy, row, one, context)
        rows[row] = _last(record) | _until(record, settings.user_perplexity)
        facts[f"{row}: rounds"] = float(len(record.rounds))
    return Outcome(rows, facts)


def _last(record: SimulationRecord) -> dict[str, float]:
    """Megabytes of a round, and the last round's perplexities."""
    rounds = record.rounds
    figures = {
        "MB up in a round": sum(ended.bytes_up for ended in rounds) / len(rounds) / 1e6,
        "MB down in a round": sum(ended.bytes_down for ended in rounds) / len(rounds) / 1e6,
    }
    quality = rounds[-1].quality
    if quality is not None and quality.users is not None and quality.general is not None:
        figures["user perplexity"] = quality.users.perplexity.mean
        figures["general perplexity"] = quality.general.perplexity
    return figures


def _until(record: SimulationRecord, target: float) -> dict[str, float]:
    """Rounds and megabytes until the first evaluation at or below the target."""
    up = 0
    for ended in record.rounds:
        up += ended.bytes_up
        quality = ended.quality
        if quality is not None and quality.users is not None and quality.users.perplexity.mean <= target:
            return {"rounds to the target": ended.number, "MB up to the target": up / 1e6}
    return {}
