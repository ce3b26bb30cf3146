"""Compare a phone bench with an older one, phone by phone, for use in CI."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Literal

from phonograd.android_harness.errors import RegressionError, ReportError
from phonograd.android_harness.report.intervals import MIN_EPOCHS, from_epochs, from_steps
from phonograd.android_harness.report.names import core_ranges, describe_power, phone_name
from phonograd.android_harness.result import OutputLayerKind, PhoneBenchReport, PhoneResult, with_kind
from phonograd.device_runtime.base.documents import Amount, Count, Ratio, Record, about
from phonograd.device_runtime.base.errors import UsageError

# The fields that change an epoch's amount of work, the way a phone does it, or how hot it is as an epoch begins.
_WORKLOAD = ("manifest_sha256", "parameters", "minibatch", "bptt", "tokens")
_SETTINGS = (
    *("threads", "cores", "pin", "precision", "output_sample", "full_softmax", "duty", "nice"),
    *("warm_up", "cooldown_seconds"),
)
# Differences at the start from which on times may differ too.
_START_CELSIUS, _START_PERCENT = 5.0, 20
_PERCENT = re.compile(r"\s*([0-9]{1,4}(?:\.[0-9]+)?|\.[0-9]+)\s*(%?)\s*")


class TimeRatio(Record, frozen=True):
    """Ratio of epoch times, new over old."""

    ratio: Annotated[Ratio, about("Median epoch, new over old")]
    low: Annotated[Ratio | None, about("Lower end of the 95 % confidence interval; null without one")]
    high: Annotated[Ratio | None, about("Upper end of the 95 % confidence interval; null without one")]
    basis: Annotated[
        Literal["epochs", "steps"] | None,
        about("What the interval is from; one from steps ignores how epochs vary, and --max-slowdown rejects it"),
    ]

    @property
    def interval(self) -> str:
        """Both ends of the confidence interval; "" without one."""
        return f"{self.low:.3f} to {self.high:.3f}" if self.low is not None else ""


class PhoneComparison(Record, frozen=True):
    """One phone compared with the old report, for one output layer."""

    serial: Annotated[str, about("The phone's serial in this report")]
    name: Annotated[str, about("Its model and serial")]
    output_layer: Annotated[OutputLayerKind, about("The output layer whose epochs are compared")]
    failed: Annotated[str | None, about("Why its result in this report is incomplete; null if it is complete")]
    old_epochs: Annotated[Count, about("Timed epochs in the old report")]
    new_epochs: Annotated[Count, about("Timed epochs in this report")]
    old_seconds: Annotated[
        Amount | None, about("Median epoch in the old report, in seconds; null without timed epochs")
    ]
    new_seconds: Annotated[Amount | None, about("Median epoch in this report, in seconds; null without timed epochs")]
    time: Annotated[TimeRatio | None, about("Time of an epoch, new over old; null if one report has no timed epoch")]
    peak_rss_ratio: Annotated[Ratio | None, about("Highest resident memory, new over old")]
    update_ratios: Annotated[Mapping[str, Ratio], about("Size of the update by codec, new over old")]
    remarks: Annotated[tuple[str, ...], about("Other differences, one line each")]

    @property
    def label(self) -> str:
        """The phone's name, and the output layer if that is sampled."""
        return with_kind(self.name, self.output_layer)

    def is_slower(self, max_slowdown: float) -> bool:
        """Whether the interval is from epochs and lies entirely above 1 + max_slowdown."""
        time = self.time
        return time is not None and time.basis == "epochs" and time.low is not None and time.low > 1 + max_slowdown

    def may_be_slower(self, max_slowdown: float) -> bool:
        """Whether the interval, or without one the ratio, lies partly above 1 + max_slowdown."""
        if self.time is None or self.is_slower(max_slowdown):
            return False
        return (self.time.ratio if self.time.high is None else self.time.high) > 1 + max_slowdown


class Comparison(Record, frozen=True):
    """This report compared with an older one."""

    phones: Annotated[tuple[PhoneComparison, ...], about("The phones in both reports")]
    missing: Annotated[tuple[str, ...], about("Phones only in the old report")]
    added: Annotated[tuple[str, ...], about("Phones only in this report")]
    differences: Annotated[
        tuple[str, ...],
        about(
            "Why the times are not comparable: another workload, threads, cores, precision, output layers, duty, nice, "
            "warm-up or cool-down; empty if they are"
        ),
    ]


def compare(old: PhoneBenchReport, new: PhoneBenchReport) -> Comparison:
    """Compare `new` with `old`. The ratios are given even if `differences` is not empty.

    Phones are matched by serial; else by Android's build fingerprint, else by model, if only one phone in each report
    has it.
    """
    pairs, gone, added = _pairs(old.phones, new.phones)
    workloads = ([getattr(one.workload, name) for name in _WORKLOAD] for one in (old, new))
    return Comparison(
        phones=tuple(one for before, after in pairs for one in _compare_layers(before, after)),
        missing=tuple(phone_name(phone.facts) for phone in gone),
        added=tuple(phone_name(phone.facts) for phone in added),
        differences=(
            *(
                f"{name} was {_short(before)}, is {_short(after)}"
                for name, before, after in zip(_WORKLOAD, *workloads, strict=True)
                if before != after
            ),
            *_settings_that_differ(old.settings, new.settings),
        ),
    )


def require_no_regression(comparison: Comparison, max_slowdown: float, fail_unsure: bool = False) -> None:
    """Raise RegressionError if a phone is slower than before by more than `max_slowdown` (0.1: 10 %).

    With `fail_unsure` also if one may be: if its interval lies partly above, or it is missing in the new report.

    A phone counts as slower only if the whole 95 % interval of its ratio lies above 1 + max_slowdown. So a noisy phone,
    which has a wide interval, passes. A phone that is slower by exactly the allowed amount fails by chance in 2.5 % of
    runs at most, one that did not change far less often, even among many phones. A real slowdown is found if it exceeds
    max_slowdown by half the width of the interval; more epochs make that narrower. An interval from steps never fails,
    as it ignores how epochs vary.

    Raises ReportError if the reports are not comparable or have no phone in common, UsageError if a phone that finished
    in both has fewer than 3 timed epochs in one. A phone that failed in the new report has its own error.
    """
    if comparison.differences:
        raise ReportError(
            f"the reports are not comparable: {'; '.join(comparison.differences)}; compare runs with equal settings"
        )
    slow = [_slower_line(phone) for phone in comparison.phones if phone.is_slower(max_slowdown)]
    if slow:
        raise RegressionError(f"slower than before by more than {100 * max_slowdown:g} %: {'; '.join(slow)}")
    judged = [phone for phone in comparison.phones if phone.time is not None and phone.failed is None]
    if not judged and not any(phone.failed for phone in comparison.phones):
        raise ReportError("no phone has timed epochs in both reports; make the old report again")
    for phone in judged:
        if min(phone.old_epochs, phone.new_epochs) < MIN_EPOCHS:
            raise UsageError(
                f"{phone.label} has {phone.old_epochs} timed epochs in the old report, {phone.new_epochs} in the new: "
                f"`max_slowdown` needs {MIN_EPOCHS} in each; run both with `epochs` {MIN_EPOCHS} or more"
            )
    unsure = [f"{name} is only in the old report" for name in comparison.missing]
    unsure += [_slower_line(phone) for phone in comparison.phones if phone.may_be_slower(max_slowdown)]
    if unsure and fail_unsure:
        raise RegressionError(
            f"cannot tell whether a phone is slower than before by more than {100 * max_slowdown:g} %: "
            f"{'; '.join(unsure)}; run more `epochs`, with the same phones"
        )


def require_epochs(old: PhoneBenchReport, epochs: int) -> None:
    """Raise UsageError if a run of `epochs` could not be judged against `old`; called before the run."""
    finished = (phone for phone in old.phones if phone.failure is None)
    fewest = min((len(one.timed) for phone in finished for one in phone.by_output_layer), default=0)
    if epochs < MIN_EPOCHS:
        raise UsageError(
            f"`max_slowdown` needs `epochs` {MIN_EPOCHS} or more to tell a change from noise, found {epochs}"
        )
    if fewest < MIN_EPOCHS:
        raise UsageError(
            f"`max_slowdown` needs {MIN_EPOCHS} timed epochs of each phone in the old report, found {fewest}; "
            f"make it again with `epochs` {MIN_EPOCHS} or more"
        )


def require_comparable(old: PhoneBenchReport, settings: Mapping[str, object]) -> None:
    """Raise ReportError if a run with these settings could not be judged against `old`; called before the run."""
    differences = list(_settings_that_differ(old.settings, settings))
    if differences:
        raise ReportError(
            f"the old report is not comparable: {'; '.join(differences)}; use its options, or make it again with these"
        )


def parse_max_slowdown(text: str) -> float:
    """`10%` or `0.1` as 0.1. Raises UsageError for anything else, such as a 10 that could be either."""
    match = _PERCENT.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else math.nan
    if not match or (not match[2] and value >= 1):
        raise UsageError(f"`max_slowdown` is {text!r}, expected a share such as 10% or 0.1")
    return value


def _slower_line(phone: PhoneComparison) -> str:
    slowdown = phone.time
    assert slowdown is not None
    interval = f" (95 %: {slowdown.interval})" if slowdown.interval else ""
    return f"{phone.label} takes {slowdown.ratio:.3f} times{interval} as long"


Pair = tuple[PhoneResult, PhoneResult]


def _pairs(
    old: Sequence[PhoneResult], new: Sequence[PhoneResult]
) -> tuple[list[Pair], list[PhoneResult], list[PhoneResult]]:
    identities: tuple[Callable[[PhoneResult], object], ...] = (
        lambda phone: phone.facts.serial,
        lambda phone: phone.facts.fingerprint,
        lambda phone: phone.facts.model and (phone.facts.manufacturer, phone.facts.model),
    )
    pairs: list[Pair] = []
    gone, added = list(old), list(new)
    for identity in identities:
        for after in tuple(added):
            twins = [[phone for phone in side if identity(phone) == identity(after)] for side in (gone, added)]
            if identity(after) and len(twins[0]) == len(twins[1]) == 1:
                pairs.append((twins[0][0], after))
                gone = [phone for phone in gone if phone is not twins[0][0]]
                added = [phone for phone in added if phone is not after]
    places = {id(phone): place for place, phone in enumerate(new)}
    return sorted(pairs, key=lambda pair: places[id(pair[1])]), gone, added


def _compare_layers(old: PhoneResult, new: PhoneResult) -> Iterator[PhoneComparison]:
    """Compare by output layer of either phone; a remark that holds for all is given once."""
    either: set[OutputLayerKind] = {epoch.output_layer.kind for phone in (old, new) for epoch in phone.epochs}
    kinds: list[OutputLayerKind] = sorted(either) or ["full"]
    said: set[str] = set()
    for kind in kinds:
        both = old.with_output_layer(kind), new.with_output_layer(kind)
        remarks = tuple(line for line in _remarks(*both) if line not in said)
        said.update(remarks)
        before, after = [[epoch.seconds for epoch in phone.timed] for phone in both]
        peaks = [max((epoch.peak_rss_bytes for epoch in phone.timed), default=0) for phone in both]
        sizes, new_sizes = [{cost.codec: cost.nbytes for cost in phone.codecs} for phone in both]
        yield PhoneComparison(
            serial=new.facts.serial,
            name=phone_name(new.facts),
            output_layer=kind,
            failed=new.failure.message if new.failure else None,
            old_epochs=len(before),
            new_epochs=len(after),
            old_seconds=median(before) if before else None,
            new_seconds=median(after) if after else None,
            time=_time_ratio(*both, before, after) if before and after else None,
            peak_rss_ratio=peaks[1] / peaks[0] if all(peaks) else None,
            update_ratios={codec: nbytes / sizes[codec] for codec, nbytes in new_sizes.items() if sizes.get(codec)},
            remarks=remarks,
        )


def _time_ratio(old: PhoneResult, new: PhoneResult, before: Sequence[float], after: Sequence[float]) -> TimeRatio:
    ratio = median(after) / median(before)
    if interval := from_epochs(before, after):
        return TimeRatio(ratio, *interval, "epochs")
    steps = [[[step.seconds for step in epoch.steps] for epoch in phone.timed] for phone in (old, new)]
    if interval := from_steps(*steps):
        return TimeRatio(ratio, *interval, "steps")
    return TimeRatio(ratio, None, None, None)


def _remarks(old: PhoneResult, new: PhoneResult) -> Iterator[str]:
    for which, phone in (("old", old), ("new", new)):
        if phone.failure:
            yield f"failed in the {which} report: {phone.failure.message}"
        throttled = sum(bool(epoch.throttled) for epoch in phone.timed)
        if throttled:
            yield f"throttled in {throttled} of {len(phone.timed)} epochs of the {which} report"
    if old.facts.serial != new.facts.serial:
        yield f"compared with another phone of the same model: {phone_name(old.facts)}"
    if old.facts.fingerprint != new.facts.fingerprint:
        yield f"Android's build was {old.facts.fingerprint}, is {new.facts.fingerprint}"
    if old.fixed_performance != new.fixed_performance:
        before, after = ("on" if phone.fixed_performance else "off" for phone in (old, new))
        yield f"fixed-performance mode was {before}, is {after}"
    yield from _start_remarks(old, new)
    if old.power and new.power and old.power != new.power:
        yield f"the phone had {describe_power(old.power)}, and now {describe_power(new.power)}"
    ran = [[epoch.placement for epoch in phone.timed] for phone in (old, new)]
    places = [
        dict.fromkeys(f"{one.threads} threads on cores {core_ranges(one.cores)}" for one in all_of) for all_of in ran
    ]
    if all(places) and places[0] != places[1]:
        yield f"it ran {', '.join(places[0])}, and now {', '.join(places[1])}"
    kernels = [sorted({epoch.kernels for epoch in phone.timed}) for phone in (old, new)]
    if all(kernels) and kernels[0] != kernels[1]:
        yield f"kernels were {', '.join(kernels[0])}, are {', '.join(kernels[1])}"


def _start_remarks(old: PhoneResult, new: PhoneResult) -> Iterator[str]:
    before, after = old.facts.battery, new.facts.battery
    if _far_apart(old.facts.temperature_c, new.facts.temperature_c, _START_CELSIUS):
        celsius = f"{old.facts.temperature_c:.0f} °C, and now at {new.facts.temperature_c:.0f} °C"
        yield f"it began at {celsius}: a warmer phone throttles sooner"
    if _far_apart(before.percent, after.percent, _START_PERCENT):
        yield f"its battery was at {before.percent} %, is at {after.percent} %: some phones slow down when it is low"
    if None not in (before.charging, after.charging) and before.charging != after.charging:
        was, now = ("on external power" if battery.charging else "on battery" for battery in (before, after))
        yield f"it was {was}, and now {now}: charging warms a phone"


def _far_apart(old: float | None, new: float | None, distance: float) -> bool:
    return old is not None and new is not None and abs(new - old) >= distance


def _settings_that_differ(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    for name in _SETTINGS:
        if old.get(name) != new.get(name):
            yield f"{name} was {old.get(name)}, is {new.get(name)}"


def _short(value: object) -> str:
    return value[:12] if isinstance(value, str) else str(value)
