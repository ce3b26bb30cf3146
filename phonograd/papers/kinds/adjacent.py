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
from phonograd.device_runtime.text.sampling import Doubles
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.empirical.pairs import measure_pairs
from phonograd.simulation.empirical.tail import DELTAS, Tail, epsilon_of, fit_tail
from phonograd.simulation.simulator import Texts, population_of
from phonograd.simulation.users import read_users

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
_OTHER = ", other direction"
_RESAMPLES, _INTERVAL = 1000, (2.5, 97.5)


class Settings(Record, frozen=True):
    """sets: phones in a set; pairs, of each size; texts: drawn from each model of a pair, of `words` words; simulation:
    SimulationSettings by name; figure: the tail of the first pair, as rows, in place of the pairs.
    """

    simulation: dict[str, Any]
    sets: tuple[Positive, ...] = (10,)
    pairs: Positive = 20
    texts: Positive = 30_000
    words: Positive = 10
    figure: bool = False


def run(settings: Settings, context: Context) -> Outcome:
    """Measure pair after pair; those that an earlier run has kept are not measured again."""
    measured = _Measured(settings, context)
    rows: dict[str, dict[str, float]] = {}
    units = {}
    for place, K in enumerate(settings.sets):
        pairs = []
        for number in range(settings.pairs):
            pairs.append(context.measure_once(f"K {K}, pair {number + 1}", partial(measured.figures, K, number)))
            context.progress(place * settings.pairs + number + 1, len(settings.sets) * settings.pairs, f"pairs, K {K}")
        rows |= _curve(pairs[0]) if settings.figure else _table(f"K {K}", pairs)
        units[f"K {K}, median"] = {name: [figures[name] for figures in pairs] for name in pairs[0]}
        units[f"K {K}, share of pairs"] = {"passes": units[f"K {K}, median"]["passes"]}
    facts = {"pairs": settings.pairs, "texts": settings.texts, "words": settings.words}
    return Outcome(rows, facts, {} if settings.figure else units)


@dataclasses.dataclass(frozen=True)
class _Measured:
    """What measures pairs; it reads the texts when the first pair needs them."""

    settings: Settings
    context: Context

    def figures(self, K: int, number: int) -> dict[str, float]:
        """Figures of the direction with the larger epsilon, and of the other."""
        artifacts, texts = self._inputs
        settings, context = self.settings, self.context
        simulation = settings_of(settings.simulation | {"clients_per_round": K, "seed": context.seed}, {})
        users = dict(population_of(artifacts, texts, simulation, test_users=0).training)
        privacy = phonograd.PrivacySettings(settings.pairs, settings.texts, settings.words, simulation)
        weights = context.optional("weights")
        job = artifacts, users, texts.rehearsal, privacy, context.workers
        pairs = measure_pairs(*job, numbers=[number], weights=weights)
        less, more = sorted(pairs, key=lambda pair: pair.tail.epsilon(min(DELTAS)))
        figures = _of_tail(more.tail)
        if settings.figure:
            return figures | _points_with_errors(more.log_ratios)
        return figures | {f"{name}{_OTHER}": value for name, value in _of_tail(less.tail).items()}

    @cached_property
    def _inputs(self) -> tuple[phonograd.Artifacts, Texts]:
        given = self.context.input
        texts = Texts(read_users(given("users")), read_messages(given("rehearsal")), [])
        return phonograd.open_artifacts(given("artifacts")), texts


def _of_tail(tail: Tail) -> dict[str, float]:
    return {"alpha": tail.alpha, "C": tail.C, "KS": tail.statistic, "passes": float(tail.passes)}


def _table(size: str, pairs: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    kinds = ("smallest", "", min), ("median", "", statistics.median), ("largest", "", max)
    rows = {
        f"{size}, {row}{way}": {name: of([pair[f"{name}{way}"] for pair in pairs]) for name in ("alpha", "C", "KS")}
        for row, way, of in (*kinds, ("median", _OTHER, statistics.median))
    }
    rows[f"{size}, share of pairs"] = {"passes": statistics.fmean(pair["passes"] for pair in pairs)}
    ways = [(pair, way) for pair in pairs for way in ("", _OTHER) if pair[f"passes{way}"]]
    for delta in DELTAS if ways else ():  # no tail, no epsilon
        epsilons = (epsilon_of(pair[f"alpha{way}"], pair[f"C{way}"], delta) for pair, way in ways)
        rows[f"{size}, delta {delta:g}"] = {"epsilon": max(epsilons)}
    return rows


def _points_with_errors(log_ratios: Doubles) -> dict[str, float]:
    """The points, and of those of the tail the 95 % intervals by bootstrap over texts."""
    points = _points(log_ratios)
    random = np.random.default_rng(0)
    drawn = [_points(random.choice(log_ratios, len(log_ratios))) for _ in range(_RESAMPLES)]
    for name in [name for name in points if name.endswith(": x")]:
        low, high = np.percentile([others[name] for others in drawn], _INTERVAL)
        points |= {f"{name}, low": float(low), f"{name}, high": float(high)}
    return points


def _points(log_ratios: Doubles) -> dict[str, float]:
    """Points of Figure 4: where the tail is as high as a power of ten, and quantiles of r."""
    tail, ordered = fit_tail(log_ratios), np.sort(log_ratios)[::-1]
    points = {}
    for place in (round(len(ordered) * 10**-power) for power in (2, 2.5, 3, 3.5, 4)):
        if 1 <= place <= tail.used:
            share = place / len(ordered)
            points[f"P(c > x) = {share:.2g}: x"] = math.exp(ordered[place - 1])
            points[f"P(c > x) = {share:.2g}: x by the fit"] = (tail.C / share) ** (1 / tail.alpha)
    r = ordered[: tail.used - 1] - ordered[tail.used - 1]
    for share in QUANTILES:
        points[f"quantile {share:g}: r"] = float(np.quantile(r, share))
        points[f"quantile {share:g}: r by the fit"] = -math.log1p(-share) / tail.alpha
    return points


def _curve(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {"fit": {}}
    for name, value in figures.items():
        row, _, figure = name.rpartition(": ")
        rows.setdefault(row or "fit", {})[figure] = value
    return rows
