"""phone-bench's settings and cores: what can't be is refused before a phone is touched."""

from pathlib import Path

import pytest

from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.manifest import TrainingConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "`epochs` is 0, expected at least 1"),
        ({"warm_up": -1}, "`warm_up` is -1"),
        ({"threads": 0}, "`threads` is 0, expected 1 to 256"),
        ({"threads": 257}, "`threads` is 257"),
        ({"cores": "fast"}, "`cores` is 'fast', expected big, little, all, or a hexadecimal mask"),
        ({"cores": "0x"}, "`cores` is '0x'"),
        ({"cores": "00"}, "`cores` is '00'"),
        ({"cores": "big; reboot"}, "`cores` is 'big; reboot'"),
        ({"precision": "fp8"}, "`precision` is 'fp8', expected one of fp32, bf16, bf16-emulated"),
        ({"output_sample": 0}, "`output_sample` is 0, expected at least 1"),
        ({"full_softmax": False}, "without `full_softmax` there is nothing to time; give `output_sample` too"),
        ({"duty": 0.0}, "`duty` is 0.0, expected more than 0 and at most 1"),
        ({"nice": 20}, "`nice` is 20, expected 0 to 19"),
        ({"cooldown_seconds": -1.0}, "`cooldown_seconds` is -1.0"),
        ({"cooldown_seconds": float("nan")}, "`cooldown_seconds` is nan"),
        ({"min_battery": 101}, "`min_battery` is 101, expected 0 to 100"),
        ({"sample_seconds": 0.0}, "`sample_seconds` is 0.0"),
        ({"heartbeat_timeout": float("inf")}, "`heartbeat_timeout` is inf"),
    ],
)
def test_settings_out_of_range_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        PhoneBenchSettings(**changes)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_text_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UsageError, match="`rehearsal` needs `user`"):
        TextSettings(rehearsal=Path("general.txt"))
    with pytest.raises(UsageError, match="`user_share` needs `rehearsal`"):
        TextSettings(user=Path("user.txt"), user_share=0.5)
    with pytest.raises(UsageError, match=r"`user_share` is 0.0"):
        TextSettings(Path("user.txt"), Path("general.txt"), 0.0)


def test_the_share_is_the_users_alone_or_the_papers() -> None:
    assert TextSettings(Path("user.txt")).share == 1.0
    assert TextSettings(Path("user.txt"), Path("general.txt")).share == TrainingConfig().user_share
    assert TextSettings(Path("user.txt"), Path("general.txt"), 0.25).share == 0.25


@pytest.mark.parametrize("cores", ["big", "little", "all", "f0", "0xF0", "1"])
def test_good_cores_are_taken(cores: str) -> None:
    assert PhoneBenchSettings(cores=cores).cores == cores


def test_an_output_sample_is_timed_beside_the_full_softmax_or_alone() -> None:
    assert PhoneBenchSettings().output_layers == ("full",)
    assert PhoneBenchSettings(output_sample=7).output_layers == ("full", "sampled")
    assert PhoneBenchSettings(output_sample=7, full_softmax=False).output_layers == ("sampled",)
