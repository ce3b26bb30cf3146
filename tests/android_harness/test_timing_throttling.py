"""What counts as throttling, and what does not."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from phonograd.android_harness.result import Sample, Step
from phonograd.android_harness.timing.throttling import throttling_evidence
from tests.android_harness.fake_session import BIG, BIG_KHZ, LITTLE, LITTLE_KHZ, sample_at

CAPS = dict.fromkeys(LITTLE, LITTLE_KHZ) | dict.fromkeys(BIG, BIG_KHZ)
EPOCH = 60.0


def steps_of(seconds: Sequence[float]) -> list[Step]:
    """Steps one after the other from second 0 on."""
    ends = [sum(seconds[: number + 1]) for number in range(len(seconds))]
    return [Step(end, one, 1.0, {}) for end, one in zip(ends, seconds, strict=True)]


STEADY = steps_of([2.0] * 30)
SLOWING = steps_of([1.5] * 20 + [3.0] * 10)


def samples_of(khz: Sequence[int], cores: Sequence[int] = BIG, caps: Mapping[int, int] = CAPS) -> list[Sample]:
    """Samples evenly over the epoch, these cores at one frequency after the other, the others asleep."""
    idle = dict.fromkeys(range(8), 300_000)
    return [
        sample_at(EPOCH * (number + 0.5) / len(khz), frequencies_khz=idle | dict.fromkeys(cores, one), caps_khz=caps)
        for number, one in enumerate(khz)
    ]


def found(steps: Sequence[Step], samples: Sequence[Sample], busy: int = 4) -> tuple[str, ...]:
    return throttling_evidence(steps, samples, BIG, busy, CAPS)


def test_a_lower_cap_is_named_with_its_cores() -> None:
    samples = samples_of([BIG_KHZ] * 30, caps=CAPS | {4: 1_401_000, 5: 1_401_000, 7: 1_200_000})
    assert found(STEADY, samples) == (
        "cores 4-5 capped at 1,401 of 2,314 MHz",
        "core 7 capped at 1,200 of 2,314 MHz",
    )


def test_a_cap_on_cores_that_were_not_used_does_not_matter() -> None:
    assert found(STEADY, samples_of([BIG_KHZ] * 30, caps=CAPS | {0: 600_000})) == ()


def test_a_falling_frequency_is_throttling_and_slower_steps_support_it() -> None:
    samples = samples_of([BIG_KHZ] * 20 + [1_401_000] * 20)
    assert found(STEADY, samples) == ("frequency fell from 2,314 to 1,401 MHz",)
    assert found(SLOWING, samples) == (
        "frequency fell from 2,314 to 1,401 MHz",
        "steps slowed from 1.5 to 3 s",
    )


def test_idle_cores_neither_hide_nor_cause_a_drop() -> None:
    assert found(STEADY, samples_of([BIG_KHZ] * 40, cores=(5,)), busy=1) == ()
    wandering = [*samples_of([BIG_KHZ] * 40, cores=(4, 5))[:20], *samples_of([BIG_KHZ] * 40, cores=(6, 7))[20:]]
    assert found(STEADY, wandering, busy=2) == ()
    fallen = [*samples_of([BIG_KHZ] * 40, cores=(4, 5))[:20], *samples_of([1_401_000] * 40, cores=(6, 7))[20:]]
    assert found(STEADY, fallen, busy=2) == ("frequency fell from 2,314 to 1,401 MHz",)


def test_a_thermal_status_of_light_or_more_is_named() -> None:
    samples = [sample_at(at_s, thermal_status=2 if at_s > 30 else 0) for at_s in range(60)]
    assert found(STEADY, samples) == ("thermal status moderate",)


def test_samples_outside_the_steps_do_not_count() -> None:
    hot = {"thermal_status": 3, "caps_khz": dict.fromkeys(range(8), 300_000)}
    outside = [sample_at(-1.0, **hot), sample_at(EPOCH + 1, **hot)]
    assert found(STEADY, [*samples_of([BIG_KHZ] * 30), *outside]) == ()


def test_one_outlier_is_no_drop() -> None:
    assert found(STEADY, samples_of([BIG_KHZ, BIG_KHZ, 300_000])) == ()
    assert found(STEADY, []) == ()
    assert found([], samples_of([BIG_KHZ] * 30)) == ()


seconds = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=40)
frequencies = st.lists(st.integers(300_000, BIG_KHZ), max_size=60)


@given(seconds, st.integers(300_000, BIG_KHZ), st.integers(0, 60))
def test_constant_clocks_are_never_throttling_whatever_the_steps(
    step_seconds: list[float], khz: int, count: int
) -> None:
    assert found(steps_of(step_seconds), samples_of([khz] * count)) == ()


@given(frequencies)
def test_a_fall_is_found_exactly_where_the_last_third_is_slower_by_a_tenth(khz: list[int]) -> None:
    samples = samples_of(khz)
    first = sorted(s.frequencies_khz[4] for s in samples if s.at_s < EPOCH / 3)
    last = sorted(s.frequencies_khz[4] for s in samples if s.at_s > EPOCH - EPOCH / 3)

    def median(values: list[int]) -> float:
        middle = len(values) // 2
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    fell = min(len(first), len(last)) >= 2 and median(last) < 0.9 * median(first) * (1 - 1e-12)
    lines = found(STEADY, samples)
    assert [line.split()[0] for line in lines] == (["frequency"] if fell else [])


@given(seconds, frequencies, st.dictionaries(st.integers(0, 7), st.integers(300_000, LITTLE_KHZ)), st.integers(0, 6))
def test_slower_steps_are_named_only_with_other_evidence(
    step_seconds: list[float], khz: list[int], caps: dict[int, int], status: int
) -> None:
    samples = [
        sample_at(s.at_s, frequencies_khz=s.frequencies_khz, caps_khz=CAPS | caps, thermal_status=status)
        for s in samples_of(khz)
    ]
    lines = found(steps_of(step_seconds), samples)
    assert not lines or not lines[0].startswith("steps")
    assert len(set(lines)) == len(lines)
