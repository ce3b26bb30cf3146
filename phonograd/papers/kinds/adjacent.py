"""Paper P's empirical privacy: the tails of likelihood ratios over pairs of adjacent user sets."""

import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.sampling import Doubles
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.empirical.pairs import measure_pairs
from phonograd.simulation.empirical.tail import DELTAS, Tail, fit_tail, worst_epsilons
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
    artifacts = phonograd.open_artifacts(context.input("artifacts"))
    texts = Texts(read_users(context.input("users")), read_messages(context.input("rehearsal")), [])

    def measure(K: int, number: int) -> dict[str, dict[str, float]]:
        """Figures of the direction with the larger epsilon, and its points or the figures of the other."""
        simulation = settings_of(settings.simulation | {"clients_per_round": K, "seed": context.seed}, {})
        users = dict(population_of(artifacts, texts, simulation, test_users=0).training)
        privacy = phonograd.PrivacySettings(settings.pairs, settings.texts, settings.words, simulation)
        job = artifacts, users, texts.rehearsal, privacy, context.workers
        pairs = measure_pairs(*job, numbers=[number], weights=context.optional("weights"))
        less, more = sorted(pairs, key=lambda pair: pair.tail.epsilon(min(DELTAS)))
        if settings.figure:
            return {"fit": _of_tail(more.tail)} | _points_with_errors(more.log_ratios)
        return {"": _of_tail(more.tail), _OTHER: _of_tail(less.tail)}

    rows: dict[str, dict[str, float]] = {}
    units = {}
    for place, K in enumerate(settings.sets):
        pairs = []
        for number in range(settings.pairs):
            pairs.append(context.measure_once(f"K {K}, pair {number + 1}", partial(measure, K, number)))
            context.progress(place * settings.pairs + number + 1, len(settings.sets) * settings.pairs, f"pairs, K {K}")
        if settings.figure:
            rows |= pairs[0]
            continue
        rows |= _table(f"K {K}", pairs)
        units[f"K {K}, median"] = {
            f"{name}{way}": [pair[way][name] for pair in pairs] for way in ("", _OTHER) for name in pairs[0][way]
        }
        units[f"K {K}, share of pairs"] = {"passes": units[f"K {K}, median"]["passes"]}
    return Outcome(rows, {"pairs": settings.pairs, "texts": settings.texts, "words": settings.words}, units)


def _of_tail(tail: Tail) -> dict[str, float]:
    return {"alpha": tail.alpha, "C": tail.C, "KS": tail.statistic, "passes": float(tail.passes)}


def _table(size: str, pairs: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    kinds = ("smallest", "", min), ("median", "", statistics.median), ("largest", "", max)
    rows = {
        f"{size}, {row}{way}": {name: of([pair[way][name] for pair in pairs]) for name in ("alpha", "C", "KS")}
        for row, way, of in (*kinds, ("median", _OTHER, statistics.median))
    }
    rows[f"{size}, share of pairs"] = {"passes": statistics.fmean(pair[""]["passes"] for pair in pairs)}
    tails = [(tail["alpha"], tail["C"]) for pair in pairs for tail in pair.values() if tail["passes"]]
    for delta, epsilon in zip(DELTAS, worst_epsilons(tails), strict=True) if tails else ():  # no tail, no epsilon
        rows[f"{size}, delta {delta:g}"] = {"epsilon": epsilon}
    return rows


def _points_with_errors(log_ratios: Doubles) -> dict[str, dict[str, float]]:
    """The points, and of those of the tail the 95 % intervals by bootstrap over texts."""
    points = _points(log_ratios)
    random = np.random.default_rng(0)
    drawn = [_points(random.choice(log_ratios, len(log_ratios))) for _ in range(_RESAMPLES)]
    for row, point in points.items():
        if "x" in point:
            low, high = np.percentile([others[row]["x"] for others in drawn], _INTERVAL)
            point.update({"x, low": float(low), "x, high": float(high)})
    return points


def _points(log_ratios: Doubles) -> dict[str, dict[str, float]]:
    """Points of Figure 4: where the tail is as high as a power of ten, and quantiles of r."""
    tail, ordered = fit_tail(log_ratios), np.sort(log_ratios)[::-1]
    points = {}
    for place in (round(len(ordered) * 10**-power) for power in (2, 2.5, 3, 3.5, 4)):
        if 1 <= place <= tail.used:
            share = place / len(ordered)
            by_fit = (tail.C / share) ** (1 / tail.alpha)
            points[f"P(c > x) = {share:.2g}"] = {"x": math.exp(ordered[place - 1]), "x by the fit": by_fit}
    r = ordered[: tail.used - 1] - ordered[tail.used - 1]
    for share in QUANTILES:
        by_fit = -math.log1p(-share) / tail.alpha
        points[f"quantile {share:g}"] = {"r": float(np.quantile(r, share)), "r by the fit": by_fit}
    return points
