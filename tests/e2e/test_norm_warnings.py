"""Who combines a strategy that goes by norms with a codec that makes them larger is told so, and by how much."""

from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.update.codecs import CODECS, NORM_FACTORS
from phonograd.papers.result import read_result, results_folder
from tests.support.command_line import Run

RUNS = (
    "phonograd.commands.simulate.run_simulation",
    "phonograd.commands.privacy_attacks.simulate_attacks",
    "phonograd.commands.privacy_attacks.simulate_audit",
    "phonograd.api.serving.serve",
)


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("artifacts", "users"):
        (tmp_path / name).mkdir()

    def stop(*_: Any, **__: Any) -> None:
        raise UsageError("stopped")

    for name in RUNS:
        monkeypatch.setattr(name, stop)


@pytest.mark.parametrize(
    ("command", "strategy", "codec", "warning"),
    [
        ("simulate", "norm-bound", "rot-q1", "larger: rot-q1 1.25 times; allow for it in a bound"),
        ("privacy canaries", "dp-fedavg", "top-rows", "top-rows 2.1 times"),
        ("privacy membership", "fedatt", "rot-q2", "rot-q2 1.06 times"),
        ("privacy audit", "norm-bound", "rot-q1", "norm-bound goes by the norms of decoded updates"),
        ("simulate", "norm-bound", "rot-q4", None),
        ("privacy canaries", "fedavg", "rot-q1", None),
    ],
)
def test_a_simulation_of_its_codec(
    phono: Run, tmp_path: Path, command: str, strategy: str, codec: str, warning: str | None
) -> None:
    options = ("--users", tmp_path / "users", "--out", tmp_path / "out", "--strategy", strategy, "--codec", codec)
    if strategy == "dp-fedavg":
        options = (*options, "--set", "strategy.noise_multiplier=0")  # of noise it would look at the model
    found = phono(*command.split(), tmp_path / "artifacts", *options)
    assert "stopped" in found.err
    assert ("phonograd: warning:" in found.err) == (warning is not None)
    assert (warning or "") in found.err


def test_a_server_of_those_that_phones_may_use(phono: Run, tmp_path: Path) -> None:
    options = ("--artifacts", tmp_path / "artifacts", "--state", tmp_path / "state")
    found = phono("serve", *options, "--strategy", "norm-bound").err
    assert "norm-bound goes by the norms of decoded updates" in found
    assert "rot-q2 1.06, rot-q1 1.25, top-rows 2.1 times" in found
    assert "warning" not in phono("serve", *options).err


def test_the_factors_are_those_measured_at_full_size() -> None:
    folder = results_folder()
    assert folder is not None
    rows = read_result(folder / "codec-norms.json").means()
    for codec in set(CODECS) - {"delta-bf16"}:
        for layer in ("full", "sampled"):
            factor = rows[f"{codec}, {layer}"]["decoded norm / exact norm"]
            assert factor == pytest.approx(NORM_FACTORS.get(codec, 1.0), rel=0.02 if codec in NORM_FACTORS else 0.005)
