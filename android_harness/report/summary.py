"""What a phone's epochs come to: the figures that tables, pages and scripts show, computed in one place."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from phonograd.android_harness.result import PAPER_EPOCH_SECONDS, PhoneResult, Workload

# Paper P's epoch: 2 LSTM layers of 650 over 30,000 words (4.57e7 parameters), minibatch 10, BPTT 20, about 20 KB of
# text, which is 18 to 20 steps of 200 tokens.
_PAPER_PARAMETERS = range(45_000_000, 46_500_001)
_PAPER_TOKENS = range(3_500, 4_501)
_PAPER_MINIBATCH, _PAPER_BPTT = 10, 20


@dataclass(frozen=True)
class Spread:
    """Median, 10th and 90th percentile of `count` values; percentiles are interpolated linearly."""

    median: float
    p10: float
    p90: float
    count: int


@dataclass(frozen=True)
class Distribution:
    """How `count` values lie: the smallest, percentiles (interpolated linearly), the largest."""

    smallest: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    largest: float
    count: int


@dataclass(frozen=True)
class PhoneSummary:
    """One phone's figures over its timed epochs; None where there is none, or no sample had it.

    `threads` and `cores` (by number) are the last timed epoch's, `joules` those of an epoch in which no power came in.
    `phases` are medians of the seconds a step spends in each, `pushed_bytes` what went over the cable. `paper_ratio` is
    the median epoch over paper P's 140 s, None for another workload than the paper's. Losses are those of the first
    timed epoch.
    """

    serial: str
    model: str | None
    failed: str | None
    throttled: bool
    epoch_seconds: Spread | None
    step_seconds: Spread | None
    step_distribution: Distribution | None
    threads: int | None
    cores: tuple[int, ...]
    joules: Spread | None
    load_seconds: float | None
    tokens_per_s: float | None
    paper_ratio: float | None
    peak_rss_bytes: int | None
    loss_first: float | None
    loss_last: float | None
    phases: dict[str, float]
    max_temperature_c: float | None
    pushed_bytes: int | None


def is_papers(workload: Workload) -> bool:
    """Whether an epoch is as much work as paper P's, so that its 140 s can be set beside it."""
    return (
        workload.parameters in _PAPER_PARAMETERS
        and workload.tokens in _PAPER_TOKENS
        and (workload.minibatch, workload.bptt) == (_PAPER_MINIBATCH, _PAPER_BPTT)
    )


def summarise(phone: PhoneResult, workload: Workload) -> PhoneSummary:
    """The figures of one phone."""
    timed = phone.timed
    steps = [step for epoch in timed for step in epoch.steps]
    epochs = spread(epoch.seconds for epoch in timed)
    heat = [sample.hottest_c for sample in phone.samples]
    names = dict.fromkeys(name for step in steps for name in step.phases)
    return PhoneSummary(
        serial=phone.facts.serial,
        model=phone.facts.model,
        failed=phone.failure.message if phone.failure else None,
        throttled=any(epoch.throttled for epoch in timed),
        epoch_seconds=epochs,
        step_seconds=spread(step.seconds for step in steps),
        step_distribution=distribution([step.seconds for step in steps]),
        threads=timed[-1].placement.threads if timed else None,
        cores=timed[-1].placement.cores if timed else (),
        joules=spread(epoch.energy.joules for epoch in timed if epoch.energy),
        load_seconds=_median(epoch.load_seconds for epoch in timed),
        tokens_per_s=_median(epoch.tokens / epoch.seconds for epoch in timed),
        paper_ratio=epochs.median / PAPER_EPOCH_SECONDS if epochs and is_papers(workload) else None,
        peak_rss_bytes=max((epoch.peak_rss_bytes for epoch in timed), default=None),
        loss_first=timed[0].loss_first if timed else None,
        loss_last=timed[0].loss_last if timed else None,
        phases={name: median(step.phases.get(name, 0.0) for step in steps) for name in names},
        max_temperature_c=max((degrees for degrees in heat if degrees is not None), default=None),
        pushed_bytes=phone.pushed.nbytes if phone.pushed else None,
    )


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of some values; None without any."""
    numbers = np.fromiter(values, np.float64)
    if not numbers.size:
        return None
    p10, middle, p90 = (float(value) for value in np.percentile(numbers, (10, 50, 90)))
    return Spread(middle, p10, p90, numbers.size)


def distribution(values: Sequence[float]) -> Distribution | None:
    """How some values lie; None without any."""
    if not values:
        return None
    p = [float(value) for value in np.percentile(values, (0, 5, 25, 50, 75, 95, 99, 100))]
    return Distribution(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], len(values))


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return median(numbers) if numbers else None
