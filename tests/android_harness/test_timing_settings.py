"""phone-bench's settings and cores: what can't be is refused before a phone is touched."""

from pathlib import Path

import pytest

from phonograd.android_harness.timing.settings import PhoneBenchSettings, TextSettings
from phonograd.device_runtime.formats.manifest import TrainingConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": "fast"}, "`cores` is 'fast', expected big, little, all, or a hexadecimal mask"),
        ({"cores": "0x"}, "`cores` is '0x'"),
        ({"cores": "00"}, "`cores` is '00'"),
        ({"cores": "big; reboot"}, "`cores` is 'big; reboot'"),
        ({"full_softmax": False}, "without `full_softmax` there is nothing to time; give `output_sample` too"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        PhoneBenchSettings(**changes)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_text_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="`rehearsal` needs `user`"):
        TextSettings(rehearsal=Path("general.txt"))
    with pytest.raises(ValueError, match="`user_share` needs `rehearsal`"):
        TextSettings(user=Path("user.txt"), user_share=0.5)


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
