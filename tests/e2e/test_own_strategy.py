"""`--strategy MODULE:CLASS` on the command line."""

from pathlib import Path

import pytest

import phonograd
from phonograd.device_runtime.update.update_file import DecodedUpdate
from tests.support.command_line import Run, Workplace

NAME = "examples.own_strategy:LargestCluster"


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


def test_its_settings_are_keys(phono: Run, workplace: Workplace, users: Path, tmp_path: Path) -> None:
    line = ("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out", "--rounds", 1, "--json")
    line += ("--clients-per-round", 2, "--set", "evaluation.test_users=0", "--workers", 1, "--strategy", NAME)
    refused = phono(*line, "--set", "strategy.similarity=3")
    assert (refused.code, "strategy.own: similarity is 3.0, expected -1 to 1" in refused.err) == (2, True)
    unknown = phono(*line, "--set", "strategy.own.similarty=3")
    assert "has no such setting; did you mean similarity?" in unknown.err
    wrong = phono(*line, "--set", "strategy.own.similarity=much")
    assert "strategy.own: Expected float, got str - at similarity" in wrong.err
    ignored = phono(*line, "--set", "strategy.trimmed-mean.trim_share=0.2")
    assert "trim_share: expected with --strategy trimmed-mean" in ignored.err
    assert not (tmp_path / "out").exists()
    done = phono(*line, "--set", "strategy.similarity=-0.5")
    assert done.code == 0, done.err
    assert done.document["job"]["strategy.strategy"] == NAME
    assert done.document["job"]["strategy.own"] == '{"similarity": -0.5}'
    assert done.document["config"]["strategy"]["own"]["similarity"] == -0.5


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing:Mine", "cannot be imported: ModuleNotFoundError"),
        ("fedavgg", "expected one of fedavg, fedsgd"),
    ],
)
def test_what_is_no_strategy(phono: Run, tmp_path: Path, workplace: Workplace, name: str, expected: str) -> None:
    refused = phono("serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s", "--strategy", name)
    assert (refused.code, expected in refused.err) == (2, True), refused.err
    assert not (tmp_path / "s").exists()


def test_one_that_fails_ends_a_simulation(phono: Run, workplace: Workplace, users: Path, tmp_path: Path) -> None:
    line = ("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out", "--rounds", 1)
    line += ("--clients-per-round", 2, "--set", "evaluation.test_users=0", "--workers", 1)
    failed = phono(*line, "--strategy", "tests.e2e.test_own_strategy:Failing")
    assert failed.code == 31
    assert "Failing: measure: ZeroDivisionError" in failed.err
