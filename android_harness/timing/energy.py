"""Energy that an epoch drew from a phone's battery, from samples taken during the epoch."""

import math
from collections.abc import Sequence
from itertools import pairwise

from phonograd.android_harness.result import Energy, Sample, Step

# The kernel specifies µA and µAh, but some manufacturers' files have mA and mAh. A training phone draws more than
# 10 mA, and its battery holds more than 100 mAh, so smaller values must be in the other unit.
_MIN_UA, _MIN_UAH = 10_000, 100_000
_MIN_SAMPLES = 3
_MIN_CHANGES = 2  # of the charge counter, which moves in steps

Point = tuple[float, float]


def epoch_energy(steps: Sequence[Step], samples: Sequence[Sample], seconds: float) -> Energy | None:
    """Energy of `seconds` of steps, in J: mean power of the samples from the first step to the last, times seconds.

    It is the whole phone's, including screen and radio. None if the phone was, or may have been, on external power, or
    if it reports no voltage, or neither a current nor a changing charge.
    """
    if not steps:
        return None
    began, ended = steps[0].at_s - steps[0].seconds, steps[-1].at_s
    during = [sample for sample in samples if began <= sample.at_s <= ended]
    if {sample.power.plugged_in for sample in during} - {None} != {False}:
        return None
    volts = [sample.power.voltage_uv / 1e6 for sample in during if sample.power.voltage_uv is not None]
    if not volts:
        return None
    mean_volts = math.fsum(volts) / len(volts)
    amperes = _by_current(during)
    if amperes is not None:
        return Energy(amperes * mean_volts * seconds, amperes * mean_volts, "current")
    amperes = _by_counter(during)
    return Energy(amperes * mean_volts * seconds, amperes * mean_volts, "charge counter") if amperes else None


def _by_current(samples: Sequence[Sample]) -> float | None:
    """Mean current in A, weighted by time. Without external power the sign only depends on the manufacturer."""
    points = [(sample.at_s, abs(ua)) for sample in samples if (ua := sample.power.current_ua) is not None]
    if len(points) < _MIN_SAMPLES or points[0][0] == points[-1][0]:
        return None
    peak = max(value for _, value in points)
    unit = 1e6 if peak >= _MIN_UA else 1e3
    return _mean(points) / unit if peak else None


def _by_counter(samples: Sequence[Sample]) -> float | None:
    """Mean current in A from the counter's first change to its last; it is known only when it changes."""
    points = [(sample.at_s, uah) for sample in samples if (uah := sample.power.charge_uah) is not None]
    changes = [after for before, after in pairwise(points) if after[1] < before[1]]
    if len(changes) < _MIN_CHANGES:
        return None
    (began, full), (ended, left) = changes[0], changes[-1]
    unit = 1e6 if full >= _MIN_UAH else 1e3
    return (full - left) * 3600 / (ended - began) / unit


def _mean(points: Sequence[Point]) -> float:
    area = math.fsum((after - before) * (first + second) / 2 for (before, first), (after, second) in pairwise(points))
    return area / (points[-1][0] - points[0][0])
