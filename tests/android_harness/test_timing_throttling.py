"""What counts as throttling, and what does not."""

from collections.abc import Mapping, Sequence

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


def evidence_of(steps: Sequence[Step], samples: Sequence[Sample], busy: int = 4) -> tuple[str, ...]:
    return throttling_evidence(steps, samples, BIG, busy, CAPS)


def test_a_lower_cap_is_named_with_its_cores() -> None:
    samples = samples_of([BIG_KHZ] * 30, caps=CAPS | {4: 1_401_000, 5: 1_401_000, 7: 1_200_000})
    assert evidence_of(STEADY, samples) == (
        "cores 4-5 capped at 1,401 of 2,314 MHz",
        "core 7 capped at 1,200 of 2,314 MHz",
    )


def test_a_cap_on_cores_that_were_not_used_does_not_matter() -> None:
    assert evidence_of(STEADY, samples_of([BIG_KHZ] * 30, caps=CAPS | {0: 600_000})) == ()


def test_a_falling_frequency_is_throttling_and_slower_steps_support_it() -> None:
    assert evidence_of(SLOWING, samples_of([BIG_KHZ] * 40)) == ()
    assert evidence_of(STEADY, samples_of([BIG_KHZ] * 20 + [BIG_KHZ * 91 // 100] * 20)) == ()
    samples = samples_of([BIG_KHZ] * 20 + [1_401_000] * 20)
    assert evidence_of(STEADY, samples) == ("frequency fell from 2,314 to 1,401 MHz",)
    assert evidence_of(SLOWING, samples) == (
        "frequency fell from 2,314 to 1,401 MHz",
        "steps slowed from 1.5 to 3 s",
    )


def test_idle_cores_neither_hide_nor_cause_a_drop() -> None:
    assert evidence_of(STEADY, samples_of([BIG_KHZ] * 40, cores=(5,)), busy=1) == ()
    wandering = [*samples_of([BIG_KHZ] * 40, cores=(4, 5))[:20], *samples_of([BIG_KHZ] * 40, cores=(6, 7))[20:]]
    assert evidence_of(STEADY, wandering, busy=2) == ()
    fallen = [*samples_of([BIG_KHZ] * 40, cores=(4, 5))[:20], *samples_of([1_401_000] * 40, cores=(6, 7))[20:]]
    assert evidence_of(STEADY, fallen, busy=2) == ("frequency fell from 2,314 to 1,401 MHz",)


def test_a_thermal_status_of_light_or_more_is_named() -> None:
    samples = [sample_at(at_s, thermal_status=2 if at_s > 30 else 0) for at_s in range(60)]
    assert evidence_of(STEADY, samples) == ("thermal status moderate",)


def test_samples_outside_the_steps_do_not_count() -> None:
    hot = {"thermal_status": 3, "caps_khz": dict.fromkeys(range(8), 300_000)}
    outside = [sample_at(-1.0, **hot), sample_at(EPOCH + 1, **hot)]
    assert evidence_of(STEADY, [*samples_of([BIG_KHZ] * 30), *outside]) == ()


def test_one_outlier_is_no_drop() -> None:
    assert evidence_of(STEADY, samples_of([BIG_KHZ, BIG_KHZ, 300_000])) == ()
    assert evidence_of(STEADY, []) == ()
    assert evidence_of([], samples_of([BIG_KHZ] * 30)) == ()
