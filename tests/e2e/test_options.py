"""Options that would be ignored, numbers that are none, and help in groups."""

import re
from pathlib import Path

import pytest

import phonograd as api
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.server import ServerSettings
from tests.support.command_line import Run, Workplace
from tests.support.serving import settings_of


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("train {art} --user {user} --codec rot-q1", "--codec"),
        ("train {art} --user {user} --set training.restart=true", "training.restart"),
        ("train {art} --user {user} --set training.save_every=3", "training.save_every"),
        ("train {art} --user {user} --set training.user_share=0.3", "training.user_share"),
        ("report --state {new} --csv --json", "--json"),
        ("models --state {new} --out other", "--out"),
        ("serve --artifacts {art} --state {new} --set publish.top-rows.publish_rows=10", "publish_rows"),
        ("serve --artifacts {art} --state {new} --set masked.cohort=5", "masked.cohort"),
        ("serve --artifacts {art} --state {new} --set rounds.min_clients=5", "rounds.min_clients"),
        ("reproduce --list --out {new}", "--out"),
        ("reproduce --page {new} --workers 2", "--workers"),
        ("eval {art} --text {user} --token secret", "--token"),
        ("train {art} --user {user} --set connection.model_cache={new}", "connection.model_cache"),
        ("pretrain --preset tiny --vocab {user} --text {user} --out {new} --set training.torch.device=cpu", "device"),
        (
            "pretrain --preset tiny --vocab {user} --text {user} --out {new} --set training.text_share=0.3",
            "training.text_share",
        ),
        (
            "pretrain --backend torch --preset tiny --vocab {user} --out {new} --set training.native.threads=1",
            "threads",
        ),
        ("bench upload --user {user} --phones 3", "--phones"),
        ("bench epoch --variants eager --all-variants", "--variants"),
        ("phone-round {art} --server http://127.0.0.1:1 --texts {user} --set text.on_phone=/x", "text.on_phone"),
    ],
)
def test_an_option_that_would_be_ignored(
    phono: Run, workplace: Workplace, tmp_path: Path, line: str, option: str
) -> None:
    names = {"art": workplace.artifacts, "user": workplace.user, "new": tmp_path / "new"}
    outcome = phono(*line.format(**names).split())
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{option}: expected with" in outcome.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "line",
    [
        "report --state s --price-per-gb nan",
    ],
)
def test_a_number_that_is_none(phono: Run, workplace: Workplace, line: str) -> None:
    outcome = phono(*line.format(art=workplace.artifacts, user=workplace.user).split())
    assert (outcome.code, outcome.out) == (2, "")
    assert f"Invalid value for '{line.split()[-2]}'" in outcome.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--set masked.cohort=2", "masked.cohort 2: expected a whole number from 3 to 2048"),
        ("--set masked.vendor=x", "masked.vendor is 'x', expected a public key"),
        ("--set masked.weight_cap=1000000", "expected; lower masked.bits, masked.weight_cap or masked.cohort"),
        ("--strategy median", "--strategy is 'median', expected one of fedavg, .* with --masked"),
        (
            "--strategy dp-fedavg --deadline-seconds 9 --set masked.clip=2",
            r"clip_norm is 15, expected masked.clip \(2\)",
        ),
        ("--clients-per-round 5", "--clients-per-round: expected without rounds.masked; see masked.cohort"),
        ("--set rounds.late=next", "rounds.late is 'next', expected 'drop'"),
    ],
)
def test_options_of_masked_rounds_are_refused_before_one_opens(
    phono: Run, workplace: Workplace, tmp_path: Path, line: str, message: str
) -> None:
    outcome = phono("serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "new", "--masked", *line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert re.search(message, outcome.err)
    assert not (tmp_path / "new").exists()


def test_options_make_the_settings_of_masked_rounds() -> None:
    capped = settings_of(
        "--masked", *(f"--set=masked.{one}" for one in ("cohort=60", "weight_cap=9", f"vendor={'ab' * 32}"))
    )
    usual, none = settings_of("--masked"), settings_of()
    assert capped.masked == MaskedSettings(cohort=60, weight_cap=9, vendor="ab" * 32)
    assert (capped.rules.clients_per_round, capped.strategy.weighting) == (60, "tokens")
    assert usual.masked == MaskedSettings()
    assert (usual.rules.clients_per_round, usual.strategy.weighting) == (100, "equal")
    assert none == ServerSettings()


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 0, -1])
def test_the_python_api_refuses_such_a_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="`learning_rate`"):
        api.TrainSettings(learning_rate=rate)
