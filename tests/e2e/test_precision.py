"""`--precision auto`, and bf16 where it is slower."""

import pytest

from phonograd.device_runtime.engine import precision
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.precision import FasterPrecision
from tests.support.command_line import Run, Workplace

SLOWER = FasterPrecision("fp32", 210.0, 120.0)
FASTER = FasterPrecision("bf16", 100.0, 170.0)
HAS_BF16 = load_library().cpu_info()["bf16"] is not None


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[FasterPrecision]:
    """What is measured, the last one."""
    told = [SLOWER]

    def measure(options: BackendOptions) -> FasterPrecision:
        assert options.precision == "fp32"
        return told[-1]

    monkeypatch.setattr(precision, "faster_precision", measure)
    return told


def test_auto_takes_what_is_faster_and_says_why(phono: Run, workplace: Workplace, rates: list[FasterPrecision]) -> None:
    line = ("train", workplace.artifacts, "--user", workplace.user, "--set", "engine.precision=auto", "--json")
    done = phono(*line)
    assert (done.code, done.document["precision"]) == (0, "fp32")
    assert f"precision auto: {SLOWER}" in done.err
    rates.append(FASTER)
    done = phono(*line)
    assert f"precision auto: {FASTER}" in done.err
    if HAS_BF16:
        assert (done.code, done.document["precision"]) == (0, "bf16")
    else:  # it was told so, and is the precision that runs
        assert done.code == 10
        assert "bf16" in done.err


def test_bf16_where_it_is_slower_is_warned_of(phono: Run, workplace: Workplace, rates: list[FasterPrecision]) -> None:
    line = ("train", workplace.artifacts, "--user", workplace.user, "--set")
    assert f"warning: precision bf16: {SLOWER}" in phono(*line, "engine.precision=bf16").err
    rates.append(FASTER)
    assert "faster on this CPU" not in phono(*line, "engine.precision=bf16").err
    rates.append(FasterPrecision("fp32", 90.0, 0.0))  # the engine says what is missing
    assert "faster on this CPU" not in phono(*line, "engine.precision=bf16").err
    for asked in ("fp32", "bf16-emulated"):  # nothing is measured
        rates.clear()
        assert phono(*line, f"engine.precision={asked}").code == 0
