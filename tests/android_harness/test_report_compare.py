"""Two reports held to each other: intervals that cover, CI that fails for a reason and for nothing else."""

import math
import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from phonograd.android_harness.errors import RegressionError, ReportError
from phonograd.android_harness.report.compare import (
    PhoneComparison,
    compare,
    parse_max_slowdown,
    require_epochs,
    require_no_regression,
)
from phonograd.android_harness.report.intervals import from_epochs, from_steps
from phonograd.android_harness.result import Failure, PhoneResult, Placement, PowerState
from phonograd.device_runtime.base.errors import UsageError
from tests.android_harness.reports import PAPERS, both_layers, facts, lost_phone, phone, report, with_codecs


def compare_phones(old: PhoneResult, new: PhoneResult, **settings: Any) -> PhoneComparison:
    (found,) = compare(report(old), report(new, **settings)).phones
    return found


def test_the_interval_is_welchs() -> None:
    old, new = [30.1, 31.4, 29.9, 30.7], [33.0, 36.1, 32.2]
    expected = stats.ttest_ind(np.log(new), np.log(old), equal_var=False).confidence_interval(0.95)
    assert from_epochs(old, new) == pytest.approx((math.exp(expected.low), math.exp(expected.high)), rel=1e-5)


SIMULATIONS = 200


def test_intervals_from_steps_cover_the_ratio_of_these_epochs() -> None:
    """Intervals cover it only where epochs do not vary: they never fail a build."""
    random = np.random.default_rng(8)
    covered = {}
    for sigma in (0.0, 0.05):
        held = 0
        for _ in range(SIMULATIONS):
            old, new = _epochs(random, 1, sigma), 1.3 * _epochs(random, 1, sigma)
            interval = from_steps(old.tolist(), new.tolist())
            assert interval is not None
            held += interval[0] <= 1.3 <= interval[1]
        covered[sigma] = held / SIMULATIONS
    assert 0.88 <= covered[0.0] <= 0.99
    assert covered[0.05] < 0.5


def _epochs(random: np.random.Generator, count: int, sigma: float, steps: int = 20) -> np.ndarray:
    """Seconds of steps, shape [count, steps]: a factor for each epoch, and steps that resemble the one before."""
    noise = random.normal(0, 0.02, (count, steps))
    for step in range(1, steps):
        noise[:, step] += 0.4 * noise[:, step - 1]
    seconds: np.ndarray = 1.5 * np.exp(random.normal(0, sigma, (count, 1)) + noise)
    seconds[:, 0] *= 2
    return seconds


@pytest.mark.parametrize("new_epochs", [1, 2, 3])
def test_few_epochs_say_that_the_interval_is_from_steps(new_epochs: int) -> None:
    time = compare_phones(phone(epochs=3), phone(epochs=new_epochs, step_seconds=3.1, seed=1)).time
    assert time is not None
    assert time.ratio == pytest.approx(2, rel=0.1)
    assert time.basis == ("epochs" if new_epochs == 3 else "steps")
    assert time.low is not None and time.high is not None
    assert time.low < time.ratio < time.high


def test_without_pairs_of_steps_there_is_no_interval() -> None:
    time = compare_phones(phone(epochs=1, steps=20), phone(epochs=1, steps=19)).time
    assert time is not None
    assert (time.low, time.high, time.basis) == (None, None, None)


def test_epochs_that_do_not_vary_have_an_interval_of_no_width() -> None:
    assert from_epochs([2.0, 2.0, 2.0], [3.0, 3.0, 3.0]) == pytest.approx((1.5, 1.5))


def test_memory_and_bytes_are_compared() -> None:
    old = phone()
    epochs = tuple(replace(epoch, peak_rss_bytes=2 * epoch.peak_rss_bytes) for epoch in old.epochs)
    halves = [replace(cost, nbytes=cost.nbytes // 2) for cost in old.codecs[:2]]
    new = with_codecs(replace(old, epochs=epochs), halves)
    found = compare_phones(old, new)
    assert found.peak_rss_ratio == 2
    assert found.update_ratios == {"full-f32": 0.5, "rows-f32": 0.5}
    assert found.remarks == ()


def test_each_output_layer_is_compared_with_itself() -> None:
    old, new = both_layers(), both_layers(seed=1, step_seconds=3.1)
    comparison = compare(report(old), report(new))
    full, sampled = comparison.phones
    assert (full.output_layer, sampled.output_layer) == ("full", "sampled")
    assert (full.label, sampled.label) == ("SM-A546B (R5CT10ABCDE)", "SM-A546B (R5CT10ABCDE), sampled")
    assert full.time is not None and sampled.time is not None and full.old_seconds is not None
    assert full.time.ratio == pytest.approx(sampled.time.ratio) == pytest.approx(2, rel=0.05)
    assert sampled.old_seconds == pytest.approx(full.old_seconds / 2.5)
    assert (sampled.peak_rss_ratio, sampled.update_ratios["rows-f32"]) == (pytest.approx(1, rel=0.01), 1)
    with pytest.raises(RegressionError, match=r"SM-A546B \(R5CT10ABCDE\), sampled takes 1\.9"):
        require_no_regression(comparison, 0.1)


def test_remarks_on_both_output_layers_are_given_once() -> None:
    old, new = both_layers(), replace(both_layers(), fixed_performance=False)
    assert [len(one.remarks) for one in compare(report(old), report(new)).phones] == [1, 0]
    alone = compare(report(phone()), report(new)).phones
    assert [(one.old_epochs, one.new_epochs) for one in alone] == [(3, 3), (0, 3)]


def test_a_real_slowdown_fails() -> None:
    found = compare(
        report(phone(), phone("B", "Pixel 8")), report(phone(seed=1, step_seconds=1.95), phone("B", "Pixel 8"))
    )
    message = r"by more than 10 %: SM-A546B \(R5CT10ABCDE\) takes 1\.2\d+ times \(95 %: 1\.\d+ to 1\.\d+\) as long$"
    with pytest.raises(RegressionError, match=message) as error:
        require_no_regression(found, 0.1)
    assert "Pixel" not in str(error.value)
    assert error.value.exit_code == 24


@pytest.mark.parametrize("change", [{"step_seconds": 1.6}, {"step_seconds": 1.2}, {"noise": 0.2, "seed": 3}])
def test_small_quick_and_noisy_changes_pass(change: dict[str, Any]) -> None:
    require_no_regression(compare(report(phone()), report(phone(**change))), 0.1)


def test_the_share_that_is_allowed_decides() -> None:
    little = compare_phones(phone(noise=0.001), phone(noise=0.001, seed=1, step_seconds=1.63))
    assert little.is_slower(0.0)
    assert not little.is_slower(0.1) and not little.may_be_slower(0.1)


@pytest.mark.parametrize(("epochs", "scale"), [((1, 3), 3.0), ((3, 2), 1.0)])
def test_too_few_epochs_to_judge_are_refused(epochs: tuple[int, int], scale: float) -> None:
    old, new = phone(epochs=epochs[0]), phone(epochs=epochs[1], step_seconds=1.5 * scale)
    with pytest.raises(UsageError, match=f"{epochs[0]} timed epochs in the old report, {epochs[1]} in the new"):
        require_no_regression(compare(report(old), report(new)), 0.1)


def test_too_few_epochs_fail_before_the_run() -> None:
    require_epochs(report(phone(), lost_phone()), 3)
    with pytest.raises(
        UsageError, match="`max_slowdown` needs `epochs` 3 or more to tell a change from noise, found 2"
    ):
        require_epochs(report(phone()), 2)
    with pytest.raises(UsageError, match="3 timed epochs of each phone in the old report, found 2; make it again"):
        require_epochs(report(phone(), phone(epochs=2)), 3)
    require_epochs(report(both_layers()), 3)  # each layer's are counted
    with pytest.raises(UsageError, match="found 2"):
        require_epochs(report(both_layers(epochs=2)), 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threads": 2}, "threads was None, is 2"),
        ({"cores": "little"}, "cores was big, is little"),
        ({"output_sample": 2000}, "output_sample was None, is 2000"),
        ({"cooldown_seconds": 0.0}, "cooldown_seconds was 180.0, is 0.0"),
        ({"workload": replace(PAPERS, tokens=1000)}, "tokens was 3895, is 1000"),
        (
            {"workload": replace(PAPERS, manifest_sha256="ef" * 32)},
            "manifest_sha256 was abababababab, is efefefefefef",
        ),
    ],
)
def test_another_workload_is_an_error_and_no_slowdown(settings: dict[str, Any], said: str) -> None:
    found = compare(report(phone()), report(phone(step_seconds=9.0), **settings))
    assert found.differences == (said,)
    with pytest.raises(ReportError, match=f"are not comparable: {said}; compare runs with equal settings"):
        require_no_regression(found, 0.1)


def test_settings_without_effect_on_times_may_differ() -> None:
    assert compare(report(phone()), report(phone(), keep=True, epochs=9)).differences == ()


def test_phones_are_matched_by_serial_then_kind() -> None:
    old = report(phone("A", "Pixel 8"), phone("B", "Pixel 8"), phone("C", "moto"), phone("D", "Redmi"))
    new = report(phone("X", "moto"), phone("B", "Pixel 8"), phone("Y", "CPH2449"))
    found = compare(old, new)
    assert [pair.name for pair in found.phones] == ["moto (X)", "Pixel 8 (B)"]
    assert found.phones[0].remarks == ("compared with another phone of the same model: moto (C)",)
    assert found.missing == ("Pixel 8 (A)", "Redmi (D)")
    assert found.added == ("CPH2449 (Y)",)
    require_no_regression(found, 0.1)


def test_a_model_that_several_phones_have_matches_none() -> None:
    old = report(phone("A", "Pixel 8"), phone("B", "Pixel 8"))
    found = compare(old, report(phone("C", "Pixel 8")))
    assert (found.phones, len(found.missing), found.added) == ((), 2, ("Pixel 8 (C)",))
    with pytest.raises(ReportError, match="no phone has timed epochs in both"):
        require_no_regression(found, 0.1)
    found = compare(report(phone("A", "Pixel 8")), report(phone("B", "Pixel 8"), phone("C", "Pixel 8")))
    assert (found.phones, found.missing, len(found.added)) == ((), ("Pixel 8 (A)",), 2)


def test_a_phone_with_a_newer_android_matches_and_gets_a_remark() -> None:
    newer = replace(facts("B", "SM-A546B"), fingerprint="other", android="15")
    found = compare_phones(phone("A"), phone("B", facts=newer))
    assert (
        found.remarks[1]
        == "Android's build was samsung/SM-A546B/a54x:14/UP1A.231005.007/A546BXXU:user/release-keys, is other"
    )


def test_other_differences_get_remarks() -> None:
    new = phone(hot=True, fixed_performance=False, power=PowerState(True, None, True))
    new = replace(
        new,
        epochs=tuple(
            replace(epoch, kernels="bfdot", placement=Placement(2, True, (1, 0), (0, 1))) for epoch in new.epochs
        ),
        failure=Failure("lost", 21),
    )
    assert compare_phones(phone(), new).remarks == (
        "failed in the new report: lost",
        "throttled in 1 of 3 epochs of the new report",
        "fixed-performance mode was on, is off",
        "the phone had screen on, no doze, battery saver off, and now screen on, battery saver on",
        "it ran 4 threads on cores 4-7, and now 2 threads on cores 0-1",
        "kernels were neon, are bfdot",
    )


def test_a_start_in_another_state_gets_remarks() -> None:
    cool = facts("A", "moto")
    warm = replace(
        cool,
        temperature_c=(cool.temperature_c or 0) + 9,
        battery=replace(cool.battery, percent=(cool.battery.percent or 0) - 40, charging=not cool.battery.charging),
    )
    heat, charge, power = compare_phones(phone("A", facts=cool), phone("A", facts=warm)).remarks
    assert re.fullmatch(r"it began at \d+ °C, and now at \d+ °C: a warmer phone throttles sooner", heat)
    assert re.fullmatch(r"its battery was at \d+ %, is at \d+ %: some phones slow down when it is low", charge)
    assert power.endswith(": charging warms a phone")
    assert compare_phones(phone("A", facts=cool), phone("A", facts=cool)).remarks == ()


def test_who_wants_to_be_sure_fails_on_noise_and_on_a_missing_phone() -> None:
    noisy = compare(report(phone(noise=0.3)), report(phone(noise=0.3, seed=3)))
    require_no_regression(noisy, 0.01)
    with pytest.raises(RegressionError, match=r"cannot tell .* more than 1 %: .* times .* as long; run more `epochs`"):
        require_no_regression(noisy, 0.01, fail_unsure=True)
    gone = compare(report(phone("A", "moto"), phone("B", "Pixel 8")), report(phone("A", "moto")))
    with pytest.raises(RegressionError, match=r"Pixel 8 \(B\) is only in the old report"):
        require_no_regression(gone, 9.0, fail_unsure=True)


def test_phones_without_epochs_are_not_compared() -> None:
    for old, new in ((phone("A"), lost_phone("A")), (lost_phone("A"), phone("A")), (lost_phone("A"), lost_phone("A"))):
        found = compare(report(old), report(new))
        (pair,) = found.phones
        assert (pair.time, pair.peak_rss_ratio, dict(pair.update_ratios)) == (None, None, {})
    require_no_regression(compare(report(phone("A")), report(lost_phone("A"))), 0.1)  # it has its own exit code
    with pytest.raises(ReportError, match="no phone has timed epochs in both"):
        require_no_regression(compare(report(lost_phone("A")), report(phone("A"))), 0.1)


@pytest.mark.parametrize(
    ("text", "share"), [("10%", 0.1), ("0.1", 0.1), ("2.5 %", 0.025), ("0", 0.0), ("150%", 1.5), (".05", 0.05)]
)
def test_shares(text: str, share: float) -> None:
    assert parse_max_slowdown(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "10", "1", "%", "-5%", "nan", "inf", "ten", "1e-1", "99999%", "0.1.1", "٣%"])
def test_an_invalid_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"`max_slowdown` is {text!r}, expected a share such as 10% or 0.1")):
        parse_max_slowdown(text)
