"""Whether figures show what an experiment claims: agrees, contradicts, or neither (inconclusive).

What decides is what covers the randomness of training: all of at least three seeds; or, where each node or pair is
trained on its own, the 95 % interval of the paired effect over them. Users who are tested on one model say nothing of
another run's. An effect must be at least a tenth of the paper's. Where nothing is drawn (exact), the figures decide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from statistics import fmean

import numpy as np

from phonograd.device_runtime.base.errors import ArtifactsError, PhonogradError
from phonograd.papers.experiment import Claim, Experiment, Rows
from phonograd.papers.result import Result

SEEDS = 3  # at least
SHARE = 0.1  # of the paper's effect, at least
UNITS = 8  # nodes, pairs or phones, for an interval: at least
_RESAMPLES, _INTERVAL = 10_000, (2.5, 97.5)
_SEEDS = "seeds"  # of what decides a claim


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
    ours = _measure(claim, experiment, result, claim.rows[0], claim.rows[-1])
    theirs = _papers_effect(claim, experiment)
    steps = [_measure(claim, experiment, result, *pair) for pair in pairwise(claim.rows)]
    signs = [_sign(step) for step in steps]
    held = sum(min(of_seed) > 0 for of_seed in zip(*(step.seeds for step in steps), strict=True))
    evidence = _evidence(ours, held)
    verdict = "inconclusive"
    if min(signs) < 0:
        verdict = "contradicts"
    elif min(signs) > 0:
        verdict = "agrees"
        if theirs is not None and ours.mean < SHARE * theirs:
            verdict, evidence = "inconclusive", f"{evidence}, less than a tenth of the paper's effect"
    holds = all(step.mean > 0 for step in steps)
    paper = "" if theirs is None else _format_effect(claim, theirs)
    return Judged(claim, verdict, holds, _describe(claim, ours), paper, evidence)


def _judge_bounds(claim: Claim, experiment: Experiment, result: Result) -> Judged:
    """A claim that each row's value lies between `low` and `high`, or within so much of the paper's."""
    found = [_measure(claim, experiment, result, row) for row in claim.rows]
    limits = [_limits(claim, row, experiment.published) for row in claim.rows]
    signs = []
    for one, (low, high) in zip(found, limits, strict=True):
        least, most = one.decisive_ends
        outside = most < low or least > high
        signs.append(1 if low <= least and most <= high else -1 if outside else 0)

    def hold(values: Sequence[float]) -> bool:
        return all(low <= value <= high for value, (low, high) in zip(values, limits, strict=True))

    held = sum(map(hold, zip(*(one.seeds for one in found), strict=True)))
    theirs = [value for row in claim.rows if (value := experiment.published.get(row, {}).get(claim.figure)) is not None]
    verdict = "contradicts" if min(signs) < 0 else "agrees" if min(signs) > 0 else "inconclusive"
    ours = _range([value for one in found for value in one.seeds])
    return Judged(claim, verdict, hold([one.mean for one in found]), ours, _range(theirs), _evidence(found[0], held))


@dataclass(frozen=True)
class _Measurement:
    """A row's value, or how far one row is below another, in the claim's terms. seeds: of each seed, pooled; units: of
    each node or pair that was trained on its own, if these decide; ends: the interval of their mean, or the lowest and
    the highest seed; decided_by: `exact`, so many `nodes`, the `seeds`, or nothing.
    """

    seeds: Sequence[float]
    units: Sequence[float]
    ends: tuple[float, float]
    decided_by: str

    @property
    def mean(self) -> float:
        return fmean(self.seeds)

    @property
    def decisive_ends(self) -> tuple[float, float]:
        """Least and greatest value that the rules allow for; without bounds where nothing decides."""
        return self.ends if self.decided_by else (-math.inf, math.inf)


def _measure(claim: Claim, experiment: Experiment, result: Result, *rows: str) -> _Measurement:
    def compute(*values: float) -> float:
        return _difference(claim, *values) if claim.ordered else values[0]

    by_seed = map(result.of_seed, range(len(result.seeds)))
    seeds = [compute(*(_value(values, row, claim, "measured") for row in rows)) for values in by_seed]
    units = [result.units.get(row, {}).get(claim.figure, ()) for row in rows]
    many = sum(map(len, units[0]))
    if experiment.exact or claim.exact:
        decided_by = "exact"
    elif experiment.units and many >= UNITS:
        each = [compute(*values) for values in zip(*map(chain.from_iterable, units), strict=True)]
        return _Measurement(seeds, each, _interval(each), f"{many} {experiment.units}")
    else:
        decided_by = _SEEDS if len(seeds) >= SEEDS else ""
    return _Measurement(seeds, [], (min(seeds), max(seeds)), decided_by)


def _sign(effect: _Measurement) -> int:
    """1 if the row is below the other by the rules, and pooled; -1 if above; 0 if neither can be said."""
    low, high = effect.decisive_ends
    sign = 1 if low > 0 else -1 if high < 0 else 0
    return sign if sign * effect.mean > 0 else 0


def _evidence(found: _Measurement, held: int) -> str:
    """held: seeds that show all of a claim."""
    if found.decided_by not in ("", _SEEDS):
        return found.decided_by
    return f"{held} of {len(found.seeds)} seeds" if len(found.seeds) > 1 else "one seed"


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % of the mean over units, by bootstrap."""
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values))).mean(1)
    low, high = np.percentile(drawn, _INTERVAL)
    return float(low), float(high)


def _describe(claim: Claim, effect: _Measurement) -> str:
    mean = _format_effect(claim, effect.mean)
    low, high = (_format_effect(claim, end) for end in effect.ends)
    ends = f"{low} to {high}" if _is_difference(claim) else f"{high} to {low}"
    if effect.units:
        each = _format_effect(claim, fmean(effect.units))  # pooled, the longer texts count more
        return f"{mean}; each {each} (95 %: {ends})"
    return f"{mean} ({ends})" if len(effect.seeds) > 1 else mean


def _is_difference(claim: Claim) -> bool:
    """Whether its effect is a difference: of points, or of what may be below 0; else it is a ratio."""
    return claim.figure.endswith("%") or "change" in claim.figure


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
        return f"{effect:+.3g} points" if claim.figure.endswith("%") else f"{effect:+.3g}"
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
