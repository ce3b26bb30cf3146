"""Summary of a phone's epochs: the figures for tables, the page and scripts, computed in one place."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Annotated

import numpy as np

from phonograd.android_harness.result import (
    PAPER_EPOCH_SECONDS,
    OutputLayer,
    PhoneBenchReport,
    PhoneResult,
    Workload,
)
from phonograd.device_runtime.base.documents import Amount, Count, Integer, Number, Positive, Ratio, Record, about

# Paper P's epoch: 2 LSTM layers of 650 over 30,000 words (4.57e7 parameters), minibatch 10, BPTT 20, about 20 KB of
# text, which is 18 to 20 steps of 200 tokens.
_PAPER_PARAMETERS = range(45_000_000, 46_500_001)
_PAPER_TOKENS = range(3_500, 4_501)
_PAPER_MINIBATCH, _PAPER_BPTT = 10, 20


class Spread(Record, frozen=True):
    """Median and percentiles, interpolated linearly."""

    median: Annotated[Amount, about("Median, in the unit of the field")]
    p10: Annotated[Amount, about("10th percentile, in the unit of the field")]
    p90: Annotated[Amount, about("90th percentile, in the unit of the field")]
    count: Annotated[Positive, about("Number of values")]


class Distribution(Record, frozen=True):
    """Distribution of values; percentiles are interpolated linearly."""

    smallest: Annotated[Number, about("Smallest value, in seconds")]
    p5: Annotated[Number, about("5th percentile, in seconds")]
    p25: Annotated[Number, about("25th percentile, in seconds")]
    p50: Annotated[Number, about("Median, in seconds")]
    p75: Annotated[Number, about("75th percentile, in seconds")]
    p95: Annotated[Number, about("95th percentile, in seconds")]
    p99: Annotated[Number, about("99th percentile, in seconds")]
    largest: Annotated[Number, about("Largest value, in seconds")]
    count: Annotated[Count, about("Number of values")]


class PhoneSummary(Record, frozen=True):
    """Figures of one phone and output layer over the timed epochs, without warm-ups; null if nothing was measured."""

    serial: Annotated[str, about("The phone's serial")]
    model: Annotated[str | None, about("Its model")]
    output_layer: Annotated[
        OutputLayer | None, about("The words that the softmax ran over; null before the first epoch")
    ]
    failed: Annotated[str | None, about("Why the result is incomplete; null if it is complete")]
    throttled: Annotated[bool, about("Whether a timed epoch has evidence of throttling")]
    epoch_seconds: Annotated[Spread | None, about("Time of an epoch, over the timed epochs, in seconds")]
    times_faster: Annotated[
        Ratio | None,
        about("Median epoch of the full output layer over this sampled one's; null unless both were timed"),
    ]
    step_seconds: Annotated[Spread | None, about("Time of a step, over all steps of the timed epochs, in seconds")]
    step_distribution: Annotated[
        Distribution | None, about("Distribution of the steps of the timed epochs, including the first of each")
    ]
    threads: Annotated[Integer | None, about("Threads of the last timed epoch")]
    cores: Annotated[tuple[Integer, ...], about("Numbers of the cores they ran on")]
    joules: Annotated[Spread | None, about("Energy of an epoch, over the timed epochs on battery power, in J")]
    load_seconds: Annotated[Amount | None, about("Median time from a process's start to its first step, in seconds")]
    tokens_per_s: Annotated[Ratio | None, about("Median of an epoch's tokens over its seconds, in tokens per second")]
    paper_ratio: Annotated[
        Ratio | None, about("Median epoch over paper P's 140 s; null if the workload is not the paper's")
    ]
    peak_rss_bytes: Annotated[Count | None, about("Highest resident memory of the timed epochs, in bytes")]
    loss_first: Annotated[Number | None, about("Loss of the first timed epoch's first step, in nats a token")]
    loss_last: Annotated[Number | None, about("Loss of the first timed epoch's last step, in nats a token")]
    phases: Annotated[dict[str, Amount], about("Median time of a step by phase, in seconds")]
    max_temperature_c: Annotated[
        Number | None,
        about(
            "Highest temperature in the run, in °C: of the CPU if a sensor is known to measure it, else of any sensor"
        ),
    ]
    update_bytes: Annotated[dict[str, Count], about("Size of the update by codec, in bytes")]
    pushed_bytes: Annotated[Count | None, about("Size of the files pushed, in bytes")]


def is_paper_workload(workload: Workload) -> bool:
    """Whether an epoch is as much work as paper P's, so that the paper's 140 s can be compared."""
    return (
        workload.parameters in _PAPER_PARAMETERS
        and workload.tokens in _PAPER_TOKENS
        and (workload.minibatch, workload.bptt) == (_PAPER_MINIBATCH, _PAPER_BPTT)
    )


def summaries(report: PhoneBenchReport) -> Iterator[tuple[PhoneResult, PhoneSummary]]:
    """The result and the figures of each phone and output layer, the full one first."""
    for phone in report.phones:
        full = _median(epoch.seconds for epoch in phone.with_output_layer("full").timed)
        for one in phone.by_output_layer:
            sampled = one.output_layer is not None and one.output_layer.kind == "sampled"
            yield one, summarise(one, report.workload, full if sampled else None)


def summarise(phone: PhoneResult, workload: Workload, full_seconds: float | None = None) -> PhoneSummary:
    """The figures of one phone and output layer. full_seconds: median epoch of the full one, to compare with."""
    timed = phone.timed
    steps = [step for epoch in timed for step in epoch.steps]
    epochs = spread(epoch.seconds for epoch in timed)
    heat = [sample.hottest_c for sample in phone.samples]
    names = dict.fromkeys(name for step in steps for name in step.phases)
    return PhoneSummary(
        serial=phone.facts.serial,
        model=phone.facts.model,
        output_layer=phone.output_layer,
        failed=phone.failure.message if phone.failure else None,
        throttled=any(epoch.throttled for epoch in timed),
        epoch_seconds=epochs,
        times_faster=full_seconds / epochs.median if full_seconds and epochs else None,
        step_seconds=spread(step.seconds for step in steps),
        step_distribution=distribution([step.seconds for step in steps]),
        threads=timed[-1].placement.threads if timed else None,
        cores=timed[-1].placement.cores if timed else (),
        joules=spread(epoch.energy.joules for epoch in timed if epoch.energy),
        load_seconds=_median(epoch.load_seconds for epoch in timed),
        tokens_per_s=_median(epoch.tokens / epoch.seconds for epoch in timed),
        paper_ratio=epochs.median / PAPER_EPOCH_SECONDS if epochs and is_paper_workload(workload) else None,
        peak_rss_bytes=max((epoch.peak_rss_bytes for epoch in timed), default=None),
        loss_first=timed[0].loss_first if timed else None,
        loss_last=timed[0].loss_last if timed else None,
        phases={name: median(step.phases.get(name, 0.0) for step in steps) for name in names},
        max_temperature_c=max((degrees for degrees in heat if degrees is not None), default=None),
        update_bytes={cost.codec: cost.nbytes for cost in phone.codecs},
        pushed_bytes=phone.pushed.nbytes if phone.pushed else None,
    )


def spread(values: Iterable[float]) -> Spread | None:
    """The spread of some values; None without any."""
    numbers = np.fromiter(values, np.float64)
    if not numbers.size:
        return None
    return Spread(*[*np.percentile(numbers, (50, 10, 90)).tolist(), numbers.size])


def distribution(values: Sequence[float]) -> Distribution | None:
    """The distribution of some values; None without any."""
    if not values:
        return None
    return Distribution(*[*np.percentile(values, (0, 5, 25, 50, 75, 95, 99, 100)).tolist(), len(values)])


def _median(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return median(numbers) if numbers else None
