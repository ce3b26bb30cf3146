"""Paper P's empirical privacy: the tails of likelihood ratios over pairs of adjacent user sets."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.text.messages import read_messages
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.empirical.pairs import Pair, measure_pairs
from phonograd.simulation.empirical.tail import DELTAS, epsilon_of
from phonograd.simulation.simulator import Texts, population_of
from phonograd.simulation.users import read_users

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


class Settings(Record, frozen=True):
    """pairs; texts: drawn for each, of `words` words; simulation: SimulationSettings by name; figure: the tail of the
    first pair, as rows, in place of the pairs.
    """

    simulation: dict[str, Any]
    pairs: Positive = 20
    texts: Positive = 30_000
    words: Positive = 10
    figure: bool = False


def run(settings: Settings, context: Context) -> Outcome:
    """Measure pair after pair; those that an earlier run has kept are not measured again."""
    measured = _Measured(settings, context)
    pairs = []
    for number in range(settings.pairs):
        pairs.append(context.kept(f"pair {number + 1}", partial(measured.figures, number)))
        context.progress(number + 1, settings.pairs, "pairs")
    facts = {"pairs": settings.pairs, "texts": settings.texts, "words": settings.words}
    if settings.figure:
        return Outcome(_curve(pairs[0]), facts)
    return Outcome(_table(pairs), facts)


@dataclasses.dataclass(frozen=True)
class _Measured:
    """What measures pairs; it reads the texts when the first pair needs them."""

    settings: Settings
    context: Context

    def figures(self, number: int) -> dict[str, float]:
        artifacts, texts, settings = self._inputs
        users = dict(population_of(artifacts, texts, settings.simulation, test_users=0).training)
        workers = self.context.workers
        (pair,) = measure_pairs(artifacts, users, texts.rehearsal, settings, workers, numbers=[number])
        tail = pair.tail
        figures = {"alpha": tail.alpha, "C": tail.C, "KS": tail.statistic, "passes": float(tail.passes)}
        return figures | (_points(pair) if self.settings.figure else {})

    @cached_property
    def _inputs(self) -> tuple[phonograd.Artifacts, Texts, phonograd.PrivacySettings]:
        settings, context = self.settings, self.context
        simulation = settings_of(settings.simulation | {"seed": context.seed}, {})
        artifacts = phonograd.open_artifacts(context.input("artifacts"))
        texts = Texts(read_users(context.input("users")), read_messages(context.input("rehearsal")), [])
        return artifacts, texts, phonograd.PrivacySettings(settings.pairs, settings.texts, settings.words, simulation)


def _table(pairs: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {f"pair {number}": figures for number, figures in enumerate(pairs, 1)}
    for row, of in (("smallest", min), ("median", statistics.median), ("largest", max)):
        rows[row] = {name: of([figures[name] for figures in pairs]) for name in ("alpha", "C", "KS")}
    rows["share of pairs"] = {"passes": statistics.fmean(figures["passes"] for figures in pairs)}
    for delta in DELTAS:
        largest = max(epsilon_of(figures["alpha"], figures["C"], delta) for figures in pairs)
        rows[f"delta {delta:g}"] = {"epsilon": largest}
    return rows


def _points(pair: Pair) -> dict[str, float]:
    """Points of Figure 4: where the tail is as high as a power of ten, and quantiles of r."""
    ordered = np.sort(pair.log_ratios)[::-1]
    points = {}
    for place in (round(len(ordered) * 10**-power) for power in (2, 2.5, 3, 3.5, 4)):
        if 1 <= place <= pair.tail.used:
            share = place / len(ordered)
            points[f"P(c > x) = {share:.2g}: x"] = math.exp(ordered[place - 1])
            points[f"P(c > x) = {share:.2g}: x by the fit"] = (pair.tail.C / share) ** (1 / pair.tail.alpha)
    r = ordered[: pair.tail.used - 1] - ordered[pair.tail.used - 1]
    for share in QUANTILES:
        points[f"quantile {share:g}: r"] = float(np.quantile(r, share))
        points[f"quantile {share:g}: r by the fit"] = -math.log1p(-share) / pair.tail.alpha
    return points


def _curve(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {"fit": {}}
    for name, value in figures.items():
        row, _, figure = name.rpartition(": ")
        rows.setdefault(row or "fit", {})[figure] = value
    return rows
