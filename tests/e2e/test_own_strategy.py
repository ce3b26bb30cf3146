"""`--strategy MODULE:CLASS` on the command line."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import phonograd
from phonograd.device_runtime.update.update_file import DecodedUpdate
from tests.support.command_line import Run, Workplace

NAME = "examples.own_strategy:LargestCluster"


class Clashing(phonograd.Averaging):
    @dataclass(frozen=True)
    class Settings:
        momentum: float = 0.5


class Failing(phonograd.Averaging):
    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        del update
        return {"share": 1 / 0}


@pytest.fixture
def users(tmp_path: Path, workplace: Workplace) -> Path:
    folder = tmp_path / "users"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_bytes(workplace.user.read_bytes())
    return folder


@pytest.mark.parametrize("given", [("--strategy", NAME), (f"--strategy={NAME}",)])
def test_its_settings_are_options(
    phono: Run, workplace: Workplace, users: Path, tmp_path: Path, given: tuple[str, ...]
) -> None:
    line = ("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out", "--rounds", 1, "--json")
    line += ("--clients-per-round", 2, "--test-users", 0, "--workers", 1)
    done = phono(*line, *given, "--similarity", -0.5)
    assert done.code == 0, done.err
    assert done.document["job"]["strategy.strategy"] == NAME
    assert done.document["job"]["strategy.own"] == '{"similarity": -0.5}'


def test_they_are_in_the_help_and_checked(phono: Run, workplace: Workplace, users: Path, tmp_path: Path) -> None:
    shown = phono("serve", "--strategy", NAME, "--help")
    assert shown.code == 0
    assert f"Strategy {NAME}" in shown.out
    assert "Cosine from which two updates are similar." in shown.out
    assert "--similarity" not in phono("serve", "--help").out
    line = ("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out", "--strategy", NAME)
    refused = phono(*line, "--similarity", 3)
    assert refused.code == 2
    assert "similarity is 3" in refused.err
    assert phono(*line[:-2], "--similarity", 0.3).code == 2  # fedavg has no such option
    ignored = phono(*line, "--trim-share", 0.2)
    assert (ignored.code, "--trim-share: expected with --strategy trimmed-mean" in ignored.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing:Mine", "cannot be imported: ModuleNotFoundError"),
        ("fedavgg", "expected one of fedavg, fedsgd"),
        ("tests.e2e.test_own_strategy:Clashing", "setting 'momentum': there is such an option"),
    ],
)
def test_what_is_no_strategy(phono: Run, tmp_path: Path, workplace: Workplace, name: str, expected: str) -> None:
    refused = phono("serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s", "--strategy", name)
    assert (refused.code, expected in refused.err) == (2, True), refused.err
    assert not (tmp_path / "s").exists()


def test_one_that_fails_ends_a_simulation(phono: Run, workplace: Workplace, users: Path, tmp_path: Path) -> None:
    line = ("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out", "--rounds", 1)
    line += ("--clients-per-round", 2, "--test-users", 0, "--workers", 1)
    failed = phono(*line, "--strategy", "tests.e2e.test_own_strategy:Failing")
    assert failed.code == 31
    assert "Failing: measure: ZeroDivisionError" in failed.err
