"""Epsilon of private rounds (paper M), and paper P's empirical epsilon from the tails that it published."""

from msgspec import field

from phonograd.device_runtime.base.documents import Amount, Positive, Record
from phonograd.papers.run import Context, Outcome
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.simulation.empirical.tail import DELTAS, PAPER_ALPHA, PAPER_C, worst_epsilons


class Private(Record, frozen=True):
    """Rounds of dp-fedavg: enrolled phones, phones expected in a round, the noise multiplier, and rounds."""

    population: Positive
    per_round: Positive
    noise: Amount
    rounds: Positive


class Settings(Record, frozen=True):
    """rows: by name; none: paper P's Table 8 from its Table 7."""

    rows: dict[str, Private] = field(default_factory=dict)
    delta: Amount = 1e-9


def run(settings: Settings, context: Context) -> Outcome:
    """Account for each row; nothing is drawn at random."""
    del context
    if not settings.rows:
        worst = worst_epsilons(list(zip(PAPER_ALPHA, PAPER_C, strict=True)))
        rows = {f"delta {delta:g}": {"epsilon": epsilon} for delta, epsilon in zip(DELTAS, worst, strict=True)}
        return Outcome(rows, {"pairs": len(PAPER_ALPHA)})
    spent_by_row = {}
    for row, one in settings.rows.items():
        rounds = PrivateRounds(one.per_round / one.population, one.noise, one.rounds)
        spent = privacy_spent([rounds], settings.delta)
        spent_by_row[row] = {"epsilon": spent.epsilon, "epsilon by RDP": spent.epsilon_rdp}
    return Outcome(spent_by_row, {"delta": settings.delta})
