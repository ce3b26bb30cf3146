"""Options that would be ignored, numbers that are none, and help in groups."""

import re
from pathlib import Path

import pytest

import phonograd as api
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.server import ServerSettings
from tests.support.command_line import Run, Workplace
from tests.support.serving import settings_of


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("train {art} --user {user} --codec rot-q1", "--codec"),
        ("report --state {new} --csv --json", "--json"),
        ("models --state {new} --out other", "--out"),
        ("simulate {art} --users {user} --out {new} --user-share 0.5", "--user-share"),
        ("privacy canaries {art} --users {user} --out {new} --noise-multiplier 2", "--noise-multiplier"),
        ("privacy audit {art} --users {user} --out {new} --dp-delta 1e-5", "--dp-delta"),
        ("simulate {art} --users {user} --out {new} --late next", "--late"),
        ("serve --artifacts {art} --state {new} --publish-rows 10", "--publish-rows"),
        ("serve --artifacts {art} --state {new} --strategy median --trim-share 0.2", "--trim-share"),
        (
            "serve --artifacts {art} --state {new} --strategy dp-fedavg --deadline-seconds 9 --min-share 1",
            "--min-share",
        ),
        ("serve --artifacts {art} --state {new} --transfer-cycles 2", "--transfer-cycles"),
        ("serve --artifacts {art} --state {new} --server-optimizer adam --momentum 0.5", "--momentum"),
        ("serve --artifacts {art} --state {new} --cohort 5", "--cohort"),
        ("reproduce --list --out {new}", "--out"),
        ("reproduce --page {new} --workers 2", "--workers"),
        ("eval {art} --text {user} --token secret", "--token"),
        ("train {art} --user {user} --model-cache {new}", "--model-cache"),
        ("pretrain --preset tiny --vocab {user} --text {user} --out {new} --device cpu", "--device"),
        ("pretrain --backend torch --preset tiny --vocab {user} --text {user} --out {new} --threads 1", "--threads"),
        ("bench upload --user {user} --phones 3", "--phones"),
        ("bench epoch --variants eager --all-variants", "--variants"),
        ("phone-bench {art} --full-softmax", "--full-softmax"),
        ("phone-round {art} --server http://127.0.0.1:1 --texts {user} --text-on-phone /x", "--text-on-phone"),
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
        "train {art} --user {user} --lr nan",
        "pretrain --preset tiny --vocab {user} --text {user} --out out --clip-norm -inf",
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
        ("--cohort 2", "--cohort 2: expected a whole number from 3 to 2048"),
        ("--vendor-key x", "--vendor-key is 'x', expected a public key"),
        ("--weight-cap 1000000", "sums of 35 bits, at most 31 expected; lower --mask-bits, --weight-cap or --cohort"),
        ("--strategy median", "--strategy is 'median', expected one of fedavg, .* with --masked"),
        (
            "--strategy dp-fedavg --deadline-seconds 9 --mask-clip 2",
            r"--dp-clip-norm is 15, expected --mask-clip \(2\)",
        ),
        ("--clients-per-round 5", "--clients-per-round: expected without --masked; see --cohort"),
        ("--late next", "--late is 'next', expected 'drop'"),
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
    capped = settings_of("--masked", "--cohort", "60", "--weight-cap", "9", "--vendor-key", "ab" * 32)
    usual, none = settings_of("--masked"), settings_of()
    assert capped.masked == MaskedSettings(cohort=60, weight_cap=9, vendor="ab" * 32)
    assert (capped.rules.clients_per_round, capped.strategy.weighting) == (60, "tokens")
    assert usual.masked == MaskedSettings()
    assert (usual.rules.clients_per_round, usual.strategy.weighting) == (100, "equal")
    assert none == ServerSettings()


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 0, -1])
def test_the_python_api_refuses_such_a_rate(workplace: Workplace, rate: float) -> None:
    with pytest.raises(UsageError, match="`learning_rate`"):
        api.train(workplace.artifacts, workplace.user, learning_rate=rate)


@pytest.mark.parametrize("name", ["serve", "simulate"])
def test_help_is_in_groups(phono: Run, name: str) -> None:
    shown = phono(name, "--help").out
    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert {"Options:", "Rounds:", "Strategy:", "Strategy transfer:"} <= set(titles)
    rounds = shown.split("\nRounds:\n")[1].split("\n\n")[0]
    assert "--clients-per-round" in rounds
    assert shown.count("--clients-per-round INTEGER") == 1
