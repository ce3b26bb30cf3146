"""Evidence that a phone throttled during an epoch, from samples taken during the epoch."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from phonograd.android_harness.result import Sample, Step
from phonograd.android_harness.timing.cooling import thermal_status_name

LIGHT = 1  # PhoneFacts.thermal_status
FREQUENCY_DROP = 0.10
STEP_DRIFT = 1.10
_MIN_SAMPLES = 2  # in a third of an epoch, so that one outlier does not decide the median


def throttling_evidence(
    steps: Sequence[Step],
    samples: Sequence[Sample],
    cores: Iterable[int],
    busy: int,
    cool_caps_khz: Mapping[int, int],
) -> tuple[str, ...]:
    """Evidence of throttling during these steps, one line each; empty without any.

    samples: of the whole run; those taken during the steps count. cores: those that the threads may run on; `busy` of
    them are in use. cool_caps_khz: each core's cap while the phone is cool, in kHz. Steps that became slower are listed
    only next to other evidence, as the text or another app could cause that too.
    """
    if not steps:
        return ()
    began, ended = steps[0].at_s - steps[0].seconds, steps[-1].at_s
    during = [sample for sample in samples if began <= sample.at_s <= ended]
    chosen = frozenset(cores)
    third = (ended - began) / 3
    lines = [
        *_caps(during, chosen, cool_caps_khz),
        *_frequency(
            _busy_mhz((sample for sample in during if sample.at_s < began + third), chosen, busy),
            _busy_mhz((sample for sample in during if sample.at_s > ended - third), chosen, busy),
        ),
        *_status(during),
    ]
    return (*lines, *_drift(steps)) if lines else ()


def _caps(samples: Sequence[Sample], cores: frozenset[int], cool_caps_khz: Mapping[int, int]) -> list[str]:
    fallen: dict[tuple[int, int], list[int]] = {}
    for core in sorted(cores & cool_caps_khz.keys()):
        lowest = min((sample.caps_khz[core] for sample in samples if core in sample.caps_khz), default=None)
        if lowest is not None and lowest < cool_caps_khz[core]:
            fallen.setdefault((lowest, cool_caps_khz[core]), []).append(core)
    return [
        f"{_name_cores(numbers)} capped at {low / 1000:,.0f} of {high / 1000:,.0f} MHz"
        for (low, high), numbers in fallen.items()
    ]


def _name_cores(cores: Sequence[int]) -> str:
    if len(cores) == 1:
        return f"core {cores[0]}"
    consecutive = cores[-1] - cores[0] == len(cores) - 1
    return f"cores {cores[0]}-{cores[-1]}" if consecutive else f"cores {', '.join(map(str, cores))}"


def _busy_mhz(samples: Iterable[Sample], cores: frozenset[int], busy: int) -> list[float]:
    """Each sample's mean frequency of the `busy` fastest cores; the others are idle and therefore slow."""
    speeds = []
    for sample in samples:
        fastest = sorted((khz for core, khz in sample.frequencies_khz.items() if core in cores), reverse=True)[:busy]
        if fastest:
            speeds.append(statistics.fmean(fastest) / 1000)
    return speeds


def _frequency(first: Sequence[float], last: Sequence[float]) -> list[str]:
    if min(len(first), len(last)) < _MIN_SAMPLES:
        return []
    before, after = statistics.median(first), statistics.median(last)
    if after >= (1 - FREQUENCY_DROP) * before:
        return []
    return [f"frequency fell from {before:,.0f} to {after:,.0f} MHz"]


def _status(samples: Sequence[Sample]) -> list[str]:
    worst = max((sample.thermal_status for sample in samples if sample.thermal_status is not None), default=0)
    return [f"thermal status {thermal_status_name(worst)}"] if worst >= LIGHT else []


def _drift(steps: Sequence[Step]) -> list[str]:
    third = len(steps) // 3
    if third == 0:
        return []
    before = statistics.median(step.seconds for step in steps[:third])
    after = statistics.median(step.seconds for step in steps[-third:])
    return [f"steps slowed from {before:.3g} to {after:.3g} s"] if after > STEP_DRIFT * before else []
