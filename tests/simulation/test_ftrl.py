"""Simulations of dp-ftrl: who may take part, what it costs, and that a kill changes nothing."""

import dataclasses
import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.server_agg.aggregation.correlation.errors import running_sum_errors
from phonograd.server_agg.aggregation.correlation.run import begin_run
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.simulation.schedule import schedule
from tests.simulation.test_simulation import (
    GENERAL,
    MODEL,
    SETTINGS,
    TRAINING,
    USERS,
    comparable,
    models,
    run,
)
from tests.support.artifacts import exported
from tests.support.command_line import Run

STRATEGY = phonograd.StrategySettings(
    strategy="dp-ftrl",
    planned_rounds=5,
    min_separation=2,
    max_participations=2,
    noise_buffers=3,
    clip_norm=0.1,
    delta=1e-3,
)
FTRL = replace(SETTINGS, clients_per_round=2, strategy=STRATEGY)


def test_a_run_costs_the_same_from_its_first_round_on(tmp_path: Path) -> None:
    record = run(tmp_path / "run", FTRL)
    assert {ended.epsilon for ended in record.rounds} == {privacy_spent([PrivateRounds(1.0, 1.0)], 1e-3).epsilon}
    assert [ended.phones for ended in record.rounds] == [2, 2, 2]


def test_adapters_and_biases_alone_are_trained_and_get_noise(tmp_path: Path) -> None:
    artifacts = exported(msgspec.structs.replace(MODEL, adapters=2), TRAINING)
    settings = replace(FTRL, rounds=2, output_sample=4)
    phonograd.simulate(artifacts, USERS, tmp_path / "run", settings, rehearsal=GENERAL, workers=1)
    before, after = (load_tensors(path) for path in (artifacts.path(WEIGHTS), tmp_path / "run/models/2.safetensors"))
    frozen = artifacts.manifest.model.frozen_by_adapters()
    for name, values in before.items():
        still = values == after[name]
        assert still.all() if name in frozen else still.mean() < 0.02, name
    with TensorFile(tmp_path / "run/models/2.buffers.safetensors") as buffers:
        assert list(buffers.specs) == [f"{name}.buffers" for name in before if name not in frozen]


def test_an_interrupted_run_goes_on_with_the_same_noise(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", FTRL)
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        return signal.SIGTERM if len(asked) == 4 else 0  # in the second round

    with pytest.raises(phonograd.StoppedError, match="in round 2"):
        run(tmp_path / "cut", FTRL, stop=stop)
    # As after a kill between the files of round 2 and its record, of other bytes than it will write.
    for name in ("2.safetensors", "2.buffers.safetensors"):
        (tmp_path / "cut/models" / name).write_bytes((tmp_path / "whole/models" / name).read_bytes()[:-1] + b"?")
    assert comparable(run(tmp_path / "cut", FTRL)) == comparable(whole)
    for name in ("2.buffers.safetensors", "3.buffers.safetensors"):
        assert (tmp_path / "cut/models" / name).read_bytes() == (tmp_path / "whole/models" / name).read_bytes()
    assert not (tmp_path / "cut/models/1.buffers.safetensors").exists()


def test_more_rounds_go_on_with_the_noise_but_not_without_it(tmp_path: Path) -> None:
    run(tmp_path / "a", replace(FTRL, rounds=2))
    assert models(run(tmp_path / "a", FTRL)) == models(run(tmp_path / "b", FTRL))
    (tmp_path / "a/models/3.buffers.safetensors").unlink()
    with pytest.raises(phonograd.TrainingError, match=r"3\.safetensors: the noise buffers of its round expected"):
        run(tmp_path / "a", replace(FTRL, rounds=4))
    with pytest.raises(phonograd.StateError, match=r"strategy\.min_separation 2, found 1"):
        other = replace(STRATEGY, min_separation=1)
        run(tmp_path / "b", replace(FTRL, strategy=other))


def test_a_round_without_phones_publishes_noise_too(tmp_path: Path) -> None:
    record = run(tmp_path / "run", replace(FTRL, rounds=2, drop_outs=1.0))
    assert [(ended.outcome, ended.accepted) for ended in record.rounds] == [("closed", 0), ("closed", 0)]
    first, second = (load_tensors(tmp_path / f"run/models/{number}.safetensors") for number in (1, 2))
    assert all((first[name] != second[name]).mean() > 0.9 for name in first)


def test_links_in_few_bits_keep_the_terms_of_the_run(tmp_path: Path) -> None:
    record = run(tmp_path / "run", replace(FTRL, publish="top-rows"))
    assert [ended.outcome for ended in record.rounds] == ["closed"] * 3
    with TensorFile(tmp_path / "run/models/3.safetensors") as file:
        assert "dp_ftrl" in file.metadata


@pytest.mark.parametrize(("separation", "most"), [(1, 3), (3, 2), (5, 9)])
def test_a_phone_rests_and_is_not_asked_too_often(separation: int, most: int) -> None:
    strategy = replace(STRATEGY, planned_rounds=40, min_separation=separation, max_participations=most)
    settings = replace(FTRL, rounds=40, clients_per_round=3, strategy=strategy)
    users = [f"user-{number}" for number in range(20)]
    taken: dict[str, list[int]] = {user: [] for user in users}
    for number, parts in zip(range(1, 41), schedule(settings, users), strict=False):
        for part in parts:
            taken[part.user].append(number)
    for rounds in taken.values():
        assert len(rounds) <= most
        assert all(np.diff(rounds) >= separation)
    assert min(gap for rounds in taken.values() for gap in np.diff(rounds)) == separation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_separation": 5, "max_participations": 5}, "only 1 of 7 users may take part in round 4"),
        ({"min_separation": 1, "max_participations": 1}, "only 1 of 7 users may take part in round 4"),
    ],
)
def test_too_few_users_are_refused_before_a_round(tmp_path: Path, changes: dict[str, int], message: str) -> None:
    strategy = replace(STRATEGY, **changes)
    with pytest.raises(phonograd.UsageError, match=message):
        run(tmp_path / "run", replace(FTRL, rounds=5, strategy=strategy))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("strategy.planned_rounds=5", "--rounds is 10, expected at most strategy.dp-ftrl.planned_rounds (5)"),
        ("strategy.dp-fedavg.sampling=0.5", "sampling: expected with --strategy dp-fedavg, found dp-ftrl"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, phono: Run, key: str, message: str) -> None:
    line = ("simulate", "art", "--users", "users", "--out", tmp_path, "--strategy", "dp-ftrl", "--set", key)
    found = phono(*line)
    assert (found.code, message in found.err) == (2, True), found.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "--deadline-seconds is none, expected a deadline for dp-ftrl"),
        (
            "--deadline-seconds 60 --set server.ledger=postgresql://h/d",
            "store is none, expected one for a ledger in PostgreSQL",
        ),
        ("--deadline-seconds 60 --masked", "--strategy is 'dp-ftrl', expected one of fedavg, fedsgd, "),
    ],
)
def test_a_server_wants_a_deadline_and_sees_updates(tmp_path: Path, phono: Run, options: str, message: str) -> None:
    state = tmp_path / "new"
    found = phono("serve", "--artifacts", "art", "--state", state, "--strategy", "dp-ftrl", *options.split())
    assert (found.code, message in found.err, state.exists()) == (2, True, False), found.err


def test_the_command_says_what_a_run_costs(phono: Run) -> None:
    options = (
        "--planned-rounds 20 --min-separation 5 --max-participations 2 --noise-multiplier 2 --dp-delta 1e-6 --json"
    )
    found = phono("privacy", "ftrl", *options.split()).document
    settings = replace(STRATEGY, planned_rounds=20, min_separation=5, noise_buffers=4)
    assert found["epsilon"] == privacy_spent([PrivateRounds(1.0, 2.0)], 1e-6).epsilon
    assert (found["zcdp"], found["neighbours"]) == (0.125, "add or remove one user's whole text")
    assert found["sensitivity"] == begin_run(settings).sensitivity
    noise = found["noise_of_running_sum"]
    errors = running_sum_errors(begin_run(settings).blt, 20, 5, 2)
    assert noise == {name: 2 * error for name, error in dataclasses.asdict(errors).items()}
    assert noise["blt"] < min(noise["independent"], noise["tree"], noise["refined_tree"])
