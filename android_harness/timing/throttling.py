"""Whether a phone slowed itself down during an epoch, from what was sampled beside it."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from phonograd.android_harness.result import Sample, Step
from phonograd.android_harness.timing.heat import status_name

LIGHT = 1  # PhoneFacts.thermal_status
FREQUENCY_DROP = 0.10
STEP_DRIFT = 1.10
_LEAST_SAMPLES = 2  # in a third of an epoch, for a median that one odd sample does not make


def throttling(
    steps: Sequence[Step],
    samples: Sequence[Sample],
    cores: Iterable[int],
    busy: int,
    uncapped_khz: Mapping[int, int],
) -> tuple[str, ...]:
    """What speaks for throttling during these steps, one line each; empty if nothing does.

    samples: of the whole run, of which those during the steps count. cores: the ones the threads may run on, and `busy`
    how many of them are at work. uncapped_khz: the cap each core has while the phone is cool, in kHz. Steps that
    became slower are named beside other evidence only: by themselves they may be the text or another app.
    """
    if not steps:
        return ()
    began, ended = steps[0].at_s - steps[0].seconds, steps[-1].at_s
    during = [sample for sample in samples if began <= sample.at_s <= ended]
    chosen = frozenset(cores)
    third = (ended - began) / 3
    lines = [
        *_caps(during, chosen, uncapped_khz),
        *_frequency(
            _busy_mhz((sample for sample in during if sample.at_s < began + third), chosen, busy),
            _busy_mhz((sample for sample in during if sample.at_s > ended - third), chosen, busy),
        ),
        *_status(during),
    ]
    return (*lines, *_drift(steps)) if lines else ()


def _caps(samples: Sequence[Sample], cores: frozenset[int], uncapped_khz: Mapping[int, int]) -> list[str]:
    """Cores whose cap fell, those with the same fall in one line."""
    fallen: dict[tuple[int, int], list[int]] = {}
    for core in sorted(cores & uncapped_khz.keys()):
        lowest = min((sample.caps_khz[core] for sample in samples if core in sample.caps_khz), default=None)
        if lowest is not None and lowest < uncapped_khz[core]:
            fallen.setdefault((lowest, uncapped_khz[core]), []).append(core)
    return [
        f"{_named(numbers)} capped at {low / 1000:,.0f} of {high / 1000:,.0f} MHz"
        for (low, high), numbers in fallen.items()
    ]


def _named(cores: Sequence[int]) -> str:
    if len(cores) == 1:
        return f"core {cores[0]}"
    consecutive = cores[-1] - cores[0] == len(cores) - 1
    return f"cores {cores[0]}-{cores[-1]}" if consecutive else f"cores {', '.join(map(str, cores))}"


def _busy_mhz(samples: Iterable[Sample], cores: frozenset[int], busy: int) -> list[float]:
    """Of each sample, the mean frequency of the `busy` fastest of the cores: the others are idle, and slow for that."""
    found = []
    for sample in samples:
        fastest = sorted((khz for core, khz in sample.frequencies_khz.items() if core in cores), reverse=True)[:busy]
        if fastest:
            found.append(statistics.fmean(fastest) / 1000)
    return found


def _frequency(first: Sequence[float], last: Sequence[float]) -> list[str]:
    if min(len(first), len(last)) < _LEAST_SAMPLES:
        return []
    before, after = statistics.median(first), statistics.median(last)
    if after >= (1 - FREQUENCY_DROP) * before:
        return []
    return [f"frequency fell from {before:,.0f} to {after:,.0f} MHz"]


def _status(samples: Sequence[Sample]) -> list[str]:
    worst = max((sample.thermal_status for sample in samples if sample.thermal_status is not None), default=0)
    return [f"thermal status {status_name(worst)}"] if worst >= LIGHT else []


def _drift(steps: Sequence[Step]) -> list[str]:
    third = len(steps) // 3
    if third == 0:
        return []
    before = statistics.median(step.seconds for step in steps[:third])
    after = statistics.median(step.seconds for step in steps[-third:])
    return [f"steps slowed from {before:.3g} to {after:.3g} s"] if after > STEP_DRIFT * before else []
