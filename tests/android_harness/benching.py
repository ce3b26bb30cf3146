"""What tests of phone-bench on stand-in phones have in common: artifacts, the command, waiting."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from phonograd.android_harness.session import SessionSettings
from phonograd.android_harness.timing import bench
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.export.presets import PRESETS
from tests.phone.stand_in import StandInPhone
from tests.support.artifacts import exported
from tests.support.command_line import Outcome

WORK = "data/local/tmp/phonograd"


class Benched(Outcome):
    """What a bench did."""

    @property
    def phones(self) -> list[dict[str, Any]]:
        """Of its JSON document, whatever its exit code."""
        phones: list[dict[str, Any]] = json.loads(self.out)["phones"]
        return phones


Bench = Callable[..., Benched]


def bench_by(capfd: pytest.CaptureFixture[str]) -> Bench:
    """`phonograd phone-bench` in this process."""

    def call(*arguments: object) -> Benched:
        capfd.readouterr()
        code = run(phonograd, ["phone-bench", *map(str, arguments)])
        captured = capfd.readouterr()
        return Benched(code, captured.out, captured.err)

    return call


def tiny(training: TrainingConfig) -> Path:
    """The tiny preset's artifacts. An epoch with the paper's minibatches takes a stand-in some seconds."""
    return exported(PRESETS["tiny"].model, training).folder


@pytest.fixture
def gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost phone is waited for a moment only: this test does not bring it back."""
    monkeypatch.setattr(bench, "SessionSettings", partial(SessionSettings, reconnect_seconds=0.5))


def training(phone: StandInPhone) -> bool:
    """Whether it trains now."""
    return any("phonograd-phone train" in line for line in phone.processes())
