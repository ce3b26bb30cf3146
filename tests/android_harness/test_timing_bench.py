"""A bench of several phones: they are independent, a failure keeps earlier results, and signals stop them."""

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from phonograd.android_harness.errors import PhoneBusyError
from phonograd.android_harness.phones.facts import Power
from phonograd.android_harness.result import CodecCost, Energy, Failure, OutputLayer, PhoneBenchReport, PhoneResult
from phonograd.android_harness.session import SessionSettings
from phonograd.android_harness.timing.bench import run_phone_bench
from phonograd.android_harness.timing.phone_task import BenchJob, BenchTask, PhoneProgress, cool_caps
from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.formats.manifest import Artifacts
from tests.android_harness.fake_session import (
    ASLEEP,
    AWAKE,
    BIG,
    BIG_KHZ,
    LITTLE_KHZ,
    STEPS,
    FakePhone,
    FakeSession,
    FakeStop,
    parse_facts,
    phone_of,
    sample_at,
)
from tests.android_harness.small_artifacts import small_artifacts
from tests.support.waiting import PATIENCE_SECONDS

SETTINGS = PhoneBenchSettings(epochs=2, warm_up=1)


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return small_artifacts(tmp_path / "artifacts")


def bench(
    artifacts: Artifacts, phones: Sequence[FakePhone], settings: PhoneBenchSettings = SETTINGS, **options: Any
) -> PhoneBenchReport:
    """Run it on fake phones."""
    by_serial = {phone.serial: phone for phone in phones}
    adb: Any = SimpleNamespace(tool=SimpleNamespace(version="36.0.0"))
    binary = artifacts.folder / "phonograd-phone"
    binary.write_bytes(b"an arm64 program")

    def open_session(_adb: object, serial: str, session_settings: SessionSettings) -> Any:
        by_serial[serial].heartbeat_timeout = session_settings.timeout_seconds
        return FakeSession(by_serial[serial], session_settings.keep_files)

    return run_phone_bench(
        adb,
        [phone_of(serial) for serial in by_serial],
        artifacts,
        settings,
        binary,
        "0.1.0",
        open_session=open_session,
        **options,
    )


def test_a_bench_times_every_phone_and_records_its_setup(artifacts: Artifacts) -> None:
    phones = [FakePhone("A"), FakePhone("B", offers_fixed_performance=False)]
    report = bench(artifacts, phones, replace(SETTINGS, heartbeat_timeout=77.0))
    assert [result.facts.serial for result in report.phones] == ["A", "B"]
    assert [phone.heartbeat_timeout for phone in phones] == [77.0, 77.0]  # as long as this machine waits
    assert [result.fixed_performance for result in report.phones] == [True, False]
    for result in report.phones:
        assert result.failure is None
        assert (result.power_before, result.power) == (ASLEEP, AWAKE)
        assert [epoch.warm_up for epoch in result.epochs] == [True, False, False]
        assert [len(epoch.steps) for epoch in result.epochs] == [STEPS] * 3
        assert all(epoch.throttled == () for epoch in result.epochs)
        assert result.codecs == (CodecCost("rows-f32", 1000, 0.1),)
        assert len(result.samples) >= 3 * STEPS
        assert result.pushed is not None
        assert {"phonograd-phone", "tokens.bin", "artifacts/manifest.json"} <= {f.name for f in result.pushed.files}
    assert report.created.endswith("+00:00")
    assert (report.phonograd_version, report.adb_version) == ("0.1.0", "36.0.0")
    assert report.settings["epochs"] == 2
    assert report.workload.tokens == 4000
    assert [phone.left for phone in phones] == [1, 1]


SAMPLED_LINE = ["--cores", "big", "--precision", "fp32", "--output-sample", "7", "--sample-seed", "0"]


def test_the_phones_program_gets_what_was_asked(artifacts: Artifacts) -> None:
    phone = FakePhone()
    bench(artifacts, [phone], PhoneBenchSettings(epochs=1, warm_up=1, cores="little", precision="bf16"))
    line = ["train", "artifacts", "--tokens", "tokens.bin", "--seed", "0", "--cores", "little"]
    line += ["--precision", "bf16", "--pin-threads"]
    assert phone.ran == [line, [*line, "--codec-costs"]]
    bench(artifacts, [phone], PhoneBenchSettings(epochs=1, warm_up=0, threads=3, pin=False, codecs=False))
    assert phone.ran[2] == [*line[:6], "--threads", "3", "--cores", "big", "--precision", "fp32"]
    bench(
        artifacts, [phone], PhoneBenchSettings(epochs=1, warm_up=0, codecs=False, output_sample=7, full_softmax=False)
    )
    assert [sampled[6:] for sampled in phone.ran[3:]] == [[*SAMPLED_LINE, "--pin-threads"]]


def test_full_and_sampled_epochs_take_turns(artifacts: Artifacts) -> None:
    """Each goes first in turn, so that heat affects both alike."""
    phone = FakePhone()
    (result,) = bench(artifacts, [phone], PhoneBenchSettings(epochs=2, warm_up=1, output_sample=7)).phones
    ran = ["sampled" if "--output-sample" in line else "full" for line in phone.ran]
    assert ran == ["full", "sampled", "sampled", "full", "full", "sampled"]
    assert [epoch.output_layer.kind for epoch in result.epochs] == ran
    assert [epoch.warm_up for epoch in result.epochs] == [True, True, *[False] * 4]
    assert [len(epoch.codecs) for epoch in result.epochs] == [0, 0, 0, 0, 1, 1]
    full, sampled = result.by_output_layer
    assert [len(one.timed) for one in (full, sampled)] == [2, 2]
    assert (full.output_layer, sampled.output_layer) == (OutputLayer("full", 50), OutputLayer("sampled", 12))


def test_a_phone_may_be_left_asleep(artifacts: Artifacts) -> None:
    (result,) = bench(artifacts, [FakePhone()], PhoneBenchSettings(epochs=1, stay_awake=False)).phones
    assert (result.power_before, result.power) == (ASLEEP, ASLEEP)


def test_a_phone_that_is_lost_keeps_its_epochs_and_leaves_the_others_alone(artifacts: Artifacts) -> None:
    report = bench(artifacts, [FakePhone("A"), FakePhone("B", lost_in_epoch=3), FakePhone("C")])
    a, b, c = report.phones
    assert a.failure is None
    assert c.failure is None
    assert len(a.timed) == len(c.timed) == 2
    assert b.failure == Failure("phone B: disconnected", 21)
    assert len(b.timed) == 1
    assert b.pushed is not None


def test_refusals_and_bugs_of_one_phone_are_its_own(artifacts: Artifacts) -> None:
    busy = FakePhone("A", refuses=PhoneBusyError("phone A: another phonograd is using it"))
    report = bench(artifacts, [busy, FakePhone("B", bug_in_sync=True), FakePhone("C")])
    a, b, c = report.phones
    assert a.failure == Failure("phone A: another phonograd is using it", 22)
    assert (a.epochs, a.samples, a.pushed) == ((), (), None)
    assert b.failure == Failure("phone B: a bug: KeyError: 'a bug'", 1)
    assert c.failure is None


@pytest.mark.parametrize(("sample", "epochs"), [(None, 3), (7, 6)])
def test_a_signal_ends_all_phones_and_keeps_what_was_measured(
    artifacts: Artifacts, sample: int | None, epochs: int
) -> None:
    came = threading.Event()

    def at_step(epoch: int, step: int) -> None:
        if (epoch, step) == (2, 3):
            came.set()
            assert held.wait(PATIENCE_SECONDS)

    held = threading.Event()

    def stop() -> int:
        if came.is_set():
            threading.Timer(0.2, held.set).start()  # once the bench has told the phones
            return 15
        return 0

    phone = FakePhone("A", at_step=at_step)
    report = bench(artifacts, [phone], replace(SETTINGS, output_sample=sample), stop=stop)
    (result,) = report.phones
    assert result.failure == Failure(f"phone A: stopped after 1 of {epochs} epochs", 143)
    assert len(result.epochs) == 1
    assert phone.left == 1


def test_a_bad_text_fails_before_any_phone_is_used(artifacts: Artifacts, tmp_path: Path) -> None:
    user = tmp_path / "user.txt"
    user.write_text("too short\n")
    phone = FakePhone()
    with pytest.raises(TextError, match="give more text"):
        bench(artifacts, [phone], PhoneBenchSettings(text=TextSettings(user)))
    assert phone.left == 0


def test_paths_of_texts_are_not_in_the_report(artifacts: Artifacts, tmp_path: Path) -> None:
    user = tmp_path / "user.txt"
    user.write_text("w01 w02 w03\n" * 100)
    report = bench(artifacts, [FakePhone()], PhoneBenchSettings(epochs=1, text=TextSettings(user)))
    assert report.settings["text"] == {"user": "user.txt", "rehearsal": None, "user_share": 1.0, "seed": 0}
    assert str(tmp_path) not in repr(report)


def run_task(phone: FakePhone, settings: PhoneBenchSettings = SETTINGS) -> tuple[PhoneResult, list[PhoneProgress]]:
    """One phone's work, with waits that take no time."""
    session: Any = FakeSession(phone)
    seen: list[PhoneProgress] = []
    job = BenchJob({}, (), settings)
    return BenchTask(session, parse_facts(), job, seen.append, FakeStop(session)).run(), seen


FIRST_ENDS = 13.0  # a second of loading and six steps of two


def celsius_at(at_s: float) -> float:
    """A phone that the first epoch heats from 30 to 40 °C, and that cools by half a degree a second."""
    return 30.0 if at_s < 1 else max(30.0, 40.0 - max(0.0, at_s - FIRST_ENDS) / 2)


def test_epochs_begin_when_the_phone_has_cooled(artifacts: Artifacts) -> None:
    result, seen = run_task(FakePhone(celsius=celsius_at))
    first, second, _ = result.epochs
    assert first.cooled_seconds == 0.0
    assert second.cooled_seconds == 16.0
    assert [epoch.cooling for epoch in result.epochs] == ["cool"] * 3
    assert second.started_at_s >= FIRST_ENDS + 16.0
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == [
        "cooling before warm-up 1 of 1",
        "warm-up 1 of 1",
        "cooling before epoch 1 of 2",
        "epoch 1 of 2",
        "cooling before epoch 2 of 2",
        "epoch 2 of 2",
        "done",
    ]
    assert max(progress.temperature_c or 0 for progress in seen) > 35


def test_throttling_is_recorded_by_epoch(artifacts: Artifacts) -> None:
    slow = dict.fromkeys(range(8), 1_200_000)
    result, _ = run_task(
        FakePhone(changes=lambda at_s: {"frequencies_khz": slow, "caps_khz": slow} if at_s > 33 else {})
    )
    quick, steady, throttled = (epoch.throttled for epoch in result.epochs)
    assert quick == steady == ()
    assert throttled == ("cores 4-7 capped at 1,200 of 2,314 MHz", "frequency fell from 2,314 to 1,200 MHz")


def test_throttling_is_looked_for_on_the_cores_that_the_program_named(artifacts: Artifacts) -> None:
    """Whatever --cores big would mean for a phone of such cores: Android may allow others only."""
    slow = dict.fromkeys(range(8), 1_200_000)
    phone = FakePhone(cores=(1, 0), changes=lambda at_s: {"caps_khz": slow} if at_s > 33 else {})
    result, _ = run_task(phone)
    assert [epoch.placement.cores for epoch in result.epochs] == [(1, 0)] * 3
    assert result.epochs[-1].throttled == ("cores 0-1 capped at 1,200 of 1,800 MHz",)


def test_a_sweep_times_each_choice_after_the_epochs(artifacts: Artifacts) -> None:
    phone = FakePhone()
    result, seen = run_task(phone, PhoneBenchSettings(epochs=1, warm_up=0, sweep=True))
    assert result.failure is None
    assert (len(result.epochs), len(result.codecs)) == (1, 1)
    asked = [(run.cores, run.threads) for run in result.sweep]
    assert asked == [("big", 1), ("big", 2), ("big", 4), ("little", 1), ("little", 2), ("little", 4), ("all", 8)]
    lines = [f"--threads {threads} --cores {cores} --precision fp32 --pin-threads" for cores, threads in asked]
    assert [" ".join(line).partition("train artifacts ")[2] for line in phone.ran[1:]] == lines
    assert "sweep 7 of 7" in {progress.stage for progress in seen}


def test_a_phone_lost_in_a_sweep_keeps_what_came_before(artifacts: Artifacts) -> None:
    result, _ = run_task(FakePhone(lost_in_epoch=3), PhoneBenchSettings(epochs=1, warm_up=0, sweep=True))
    assert result.failure is not None
    assert (len(result.timed), len(result.sweep)) == (1, 1)


def test_an_epochs_energy_is_from_its_own_samples(artifacts: Artifacts) -> None:
    """Loading, before the first step, is no part of it."""
    told = {"power": Power(-500_000, 4_000_000, None, False)}
    result, _ = run_task(FakePhone(changes=lambda at_s: told if at_s > 13 else {}))
    unknown, *known = (epoch.energy for epoch in result.epochs)
    assert unknown is None
    assert known == [Energy(pytest.approx(24.0), pytest.approx(2.0), "current")] * 2


def test_a_low_battery_stops_the_run(artifacts: Artifacts) -> None:
    phone = FakePhone(changes=lambda at_s: {"battery_percent": 50 if at_s < 20 else 19})
    result, _ = run_task(phone)
    message = "phone PHONE1: battery at 19 %, expected at least 20 %; charge it, or lower `min_battery`"
    assert result.failure == Failure(message, 20)
    assert len(result.epochs) == 2


def test_a_cap_below_the_maximum_is_no_throttling_unless_the_phone_is_hot_already() -> None:
    fixed = dict.fromkeys(BIG, 1_800_000)
    most = dict.fromkeys(range(4), LITTLE_KHZ) | dict.fromkeys(BIG, BIG_KHZ)
    assert cool_caps(parse_facts(), sample_at(0.0, caps_khz=fixed)) == most | fixed
    assert cool_caps(parse_facts(), sample_at(0.0, caps_khz=fixed, thermal_status=1)) == most
    assert cool_caps(parse_facts(cores=()), sample_at(0.0, caps_khz={})) == {}
