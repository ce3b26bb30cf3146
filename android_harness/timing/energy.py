"""What an epoch took out of a phone's battery, from what was sampled beside it."""

import math
from collections.abc import Sequence
from itertools import pairwise

from phonograd.android_harness.result import Energy, Sample, Step

# The kernel's rule is µA and µAh, and some makers' files have mA and mAh. A phone at work draws more than 10 mA, and a
# battery that may train holds more than 100 mAh: less than that many µ is the other unit.
_LEAST_UA, _LEAST_UAH = 10_000, 100_000
_LEAST_SAMPLES = 3
_LEAST_CHANGES = 2  # of the charge counter, which moves in steps

Point = tuple[float, float]


def energy_of(steps: Sequence[Step], samples: Sequence[Sample], seconds: float) -> Energy | None:
    """Joules during `seconds` of steps: mean power of the samples between the first step and the last, times seconds.

    The whole phone's, screen and radio among it. None if power came in, if the phone does not say that none did, or
    tells no voltage, and neither a current nor a charge that changed.
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
    """Mean amperes, weighted by time. No power comes in, so the sign is the maker's choice and says nothing."""
    points = [(sample.at_s, abs(ua)) for sample in samples if (ua := sample.power.current_ua) is not None]
    if len(points) < _LEAST_SAMPLES or points[0][0] == points[-1][0]:
        return None
    most = max(value for _, value in points)
    unit = 1e6 if most >= _LEAST_UA else 1e3
    return _mean(points) / unit if most else None


def _by_counter(samples: Sequence[Sample]) -> float | None:
    """Mean amperes from one change of the counter to another: between them it says nothing."""
    points = [(sample.at_s, uah) for sample in samples if (uah := sample.power.charge_uah) is not None]
    changes = [after for before, after in pairwise(points) if after[1] < before[1]]
    if len(changes) < _LEAST_CHANGES:
        return None
    (began, full), (ended, left) = changes[0], changes[-1]
    unit = 1e6 if full >= _LEAST_UAH else 1e3
    return (full - left) * 3600 / (ended - began) / unit


def _mean(points: Sequence[Point]) -> float:
    """Mean over time of a line through the points."""
    area = math.fsum((after - before) * (first + second) / 2 for (before, first), (after, second) in pairwise(points))
    return area / (points[-1][0] - points[0][0])
