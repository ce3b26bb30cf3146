"""Whether figures show what an experiment claims: agrees, contradicts, or neither (inconclusive).

What decides is what covers the randomness of training: all of at least three seeds; or, where each node or pair is
trained on its own, the 95 % interval of the paired effect over them. Users who are tested on one model say nothing of
another run's. An effect must be at least a tenth of the paper's. Where nothing is drawn (exact), the figures decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

import numpy as np

from phonograd.device_runtime.base.errors import ArtifactsError, PhonogradError
from phonograd.papers.experiment import Claim, Experiment, Rows
from phonograd.papers.result import Result

SEEDS = 3  # at least
SHARE = 0.1  # of the paper's effect, at least
UNITS = 8  # nodes, pairs or phones, for an interval: at least
_RESAMPLES, _INTERVAL = 10_000, (2.5, 97.5)
# What decides a claim, unless it is an interval over units.
_BY_FIGURES = _NOTHING, _EXACT, _SEEDS = "", "exact", "seeds"


class ClaimError(PhonogradError):
    """A small run of an experiment does not show what it claims."""

    exit_code = 27


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict. holds: whether the means over seeds show it; ours, paper: the effects in words, empty
    for none; evidence: what the verdict stands on.
    """

    claim: Claim
    verdict: str
    holds: bool
    ours: str
    paper: str
    evidence: str


def judge(experiment: Experiment, result: Result) -> list[Judged]:
    """All claims that apply to this run. Raises ArtifactsError for one about figures that the run does not have."""
    claims = [claim for claim in experiment.claims if claim.small or not result.small]
    return [_judge(claim, experiment, result) for claim in claims]


def _judge(claim: Claim, experiment: Experiment, result: Result) -> Judged:
    judged = (_judge_order if claim.ordered else _judge_bounds)(claim, experiment, result)
    if not claim.instead:
        return judged
    verdict, _, why = claim.instead.partition(": ")
    return replace(judged, verdict=verdict, evidence=why)


def require_all(name: str, claims: Sequence[Judged]) -> None:
    """Raise ClaimError for the first claim that the means do not show."""
    for one in claims:
        if not one.holds:
            raise ClaimError(f"{name}: expected that {one.claim.says}; the figures above do not show it")


def _judge_order(claim: Claim, experiment: Experiment, result: Result) -> Judged:
    ours = _effect(claim, experiment, result, claim.rows[0], claim.rows[-1])
    theirs = _papers_effect(claim, experiment)
    steps = [_effect(claim, experiment, result, *pair) for pair in pairwise(claim.rows)]
    signs = [step.sign for step in steps]
    holds = all(step.mean > 0 for step in steps)
    held = sum(min(of_seed) > 0 for of_seed in zip(*(step.seeds for step in steps), strict=True))
    evidence = _evidence(ours.decided_by, held, len(ours.seeds))
    verdict = "inconclusive"
    if min(signs) < 0:
        verdict = "contradicts"
    elif min(signs) > 0:
        verdict = "agrees"
        if theirs is not None and ours.mean < SHARE * theirs:
            verdict, evidence = "inconclusive", f"{evidence}, less than a tenth of the paper's effect"
    return Judged(
        claim, verdict, holds, ours.describe(), "" if theirs is None else _format_effect(claim, theirs), evidence
    )


def _judge_bounds(claim: Claim, experiment: Experiment, result: Result) -> Judged:
    """A claim that each row's value lies between `low` and `high`, or within so much of the paper's."""
    limits = {row: _limits(claim, row, experiment.published) for row in claim.rows}
    seeds = [result.of_seed(index) for index in range(len(result.seeds))]
    decided_by = _decided_by(claim, experiment, result, claim.rows[0])

    def inside(rows: Rows) -> list[bool]:
        return [low <= _value(rows, row, claim, "measured") <= high for row, (low, high) in limits.items()]

    def sign(row: str) -> int:
        low, high = limits[row]
        of_seeds = [rows[row][claim.figure] for rows in seeds]
        least, most = min(of_seeds), max(of_seeds)
        if decided_by not in _BY_FIGURES:
            least, most = _interval(_units(result, row, claim.figure))
        if not decided_by:
            return 0
        if low <= least and most <= high:
            return 1
        return -1 if most < low or least > high else 0

    found = [inside(rows) for rows in seeds]
    signs = {sign(row) for row in claim.rows}
    values = [rows[row][claim.figure] for rows in seeds for row in claim.rows]
    theirs = [value for row in claim.rows if (value := experiment.published.get(row, {}).get(claim.figure)) is not None]
    evidence = _evidence(decided_by, sum(map(all, found)), len(seeds))
    verdict = "agrees" if signs == {1} else "contradicts" if -1 in signs else "inconclusive"
    return Judged(claim, verdict, all(inside(result.means())), _range(values), _range(theirs), evidence)


def _decided_by(claim: Claim, experiment: Experiment, result: Result, row: str) -> str:
    """What decides a claim: `exact`, so many `nodes`, the `seeds`, or nothing."""
    if experiment.exact or claim.exact:
        return _EXACT
    units = len(_units(result, row, claim.figure))
    if experiment.units and units >= UNITS:
        return f"{units} {experiment.units}"
    return _SEEDS if len(result.seeds) >= SEEDS else _NOTHING


def _evidence(decided_by: str, held: int, seeds: int) -> str:
    """held: seeds that show all of a claim."""
    if decided_by not in (_NOTHING, _SEEDS):
        return decided_by
    return f"{held} of {seeds} seeds" if seeds > 1 else "one seed"


def _units(result: Result, row: str, figure: str) -> list[float]:
    return [value for seed in result.units.get(row, {}).get(figure, ()) for value in seed]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the mean over units, by bootstrap."""
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values))).mean(1)
    low, high = np.percentile(drawn, _INTERVAL)
    return float(low), float(high)


@dataclass(frozen=True)
class _Effect:
    """How far one row is below another, in the claim's terms. seeds: of each seed, pooled; units: of each node or pair
    that was trained on its own; interval: of their mean, if they decide; decided_by: see _decided_by.
    """

    claim: Claim
    seeds: Sequence[float]
    units: Sequence[float]
    interval: tuple[float, float] | None
    decided_by: str

    @property
    def mean(self) -> float:
        return fmean(self.seeds)

    @property
    def sign(self) -> int:
        """1 if the row is below the other by the rules, and pooled; -1 if above; 0 if neither can be said."""
        if not self.decided_by:
            return 0
        low, high = self.interval or (min(self.seeds), max(self.seeds))
        sign = 1 if low > 0 else -1 if high < 0 else 0
        return sign if sign * self.mean > 0 else 0

    def describe(self) -> str:
        mean = _format_effect(self.claim, self.mean)
        if self.interval is not None:
            each = _format_effect(self.claim, fmean(self.units))  # pooled, the longer texts count more
            return f"{mean}; each {each} (95 %: {self._between(self.interval)})"
        return f"{mean} ({self._between((min(self.seeds), max(self.seeds)))})" if len(self.seeds) > 1 else mean

    def _between(self, ends: tuple[float, float]) -> str:
        low, high = (_format_effect(self.claim, end) for end in ends)
        return f"{low} to {high}" if _is_difference(self.claim) else f"{high} to {low}"


def _effect(claim: Claim, experiment: Experiment, result: Result, row: str, to: str) -> _Effect:
    seeds = [
        _difference(claim, *(_value(rows, name, claim, "measured") for name in (row, to)))
        for rows in map(result.of_seed, range(len(result.seeds)))
    ]
    decided_by = _decided_by(claim, experiment, result, row)
    if decided_by in _BY_FIGURES:
        return _Effect(claim, seeds, [], None, decided_by)
    pairs = zip(*(_units(result, name, claim.figure) for name in (row, to)), strict=True)
    units = [_difference(claim, *pair) for pair in pairs]
    return _Effect(claim, seeds, units, _interval(units), decided_by)


def _is_difference(claim: Claim) -> bool:
    """Whether its effect is a difference: of points, or of what may be below 0; else it is a ratio."""
    return "%" in claim.figure or "change" in claim.figure


def _difference(claim: Claim, before: float, after: float) -> float:
    if _is_difference(claim):
        return after - before
    if not before > 0 < after:
        raise ArtifactsError(f"claim {claim.says!r}: values above 0 of {claim.figure!r} expected, found {before:g}")
    return math.log(after / before)


def _papers_effect(claim: Claim, experiment: Experiment) -> float | None:
    first, last = (experiment.published.get(row, {}).get(claim.figure) for row in (claim.rows[0], claim.rows[-1]))
    return None if first is None or last is None else _difference(claim, first, last)


def _limits(claim: Claim, row: str, published: Rows) -> tuple[float, float]:
    if claim.within is not None:
        theirs = _value(published, row, claim, "published")
        return theirs - claim.within, theirs + claim.within
    return (
        -math.inf if claim.low is None else claim.low,
        math.inf if claim.high is None else claim.high,
    )


def _format_effect(claim: Claim, effect: float) -> str:
    """Points; or how far the first row is below the last, as papers say what they reduce: -64 %."""
    if _is_difference(claim):
        return f"{effect:+.3g} points" if "%" in claim.figure else f"{effect:+.3g}"
    return f"{100 * math.expm1(-effect):+.3g} %"


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low} to {high}"


def _value(rows: Rows, row: str, claim: Claim, which: str) -> float:
    try:
        return rows[row][claim.figure]
    except KeyError:
        raise ArtifactsError(
            f"claim {claim.says!r}: a {which} figure {claim.figure!r} of row {row!r} expected, found rows "
            f"{', '.join(rows)}"
        ) from None
