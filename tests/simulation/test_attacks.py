"""Exposure, ranks, AUC and true positives are held to closed forms; a secret that a model learned is found."""

import json
import math
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import skewnorm

import phonograd
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.tensor_file import Floats, save_tensors
from phonograd.device_runtime.text import sampling
from phonograd.device_runtime.text.sampling import log_likelihoods
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.papers.kinds import attacks
from phonograd.simulation.attacks import canaries, membership
from phonograd.simulation.attacks.canaries import (
    Canary,
    CanarySettings,
    Plan,
    Secrets,
    SkewNormal,
    exposure_of,
    plant,
    rank_of,
)
from phonograd.simulation.attacks.run import users_who_count
from phonograd.simulation.records import AttackRecord, Canaries, Estimate, Exposure, ExposureChange, Membership
from phonograd.simulation.schedule import schedule
from phonograd.simulation.users import text_slice
from phonograd.simulation.workers import Workers
from tests.support.artifacts import exported, words
from tests.support.command_line import Run
from tests.support.margins import Margin

V = 40
MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=V, embedding=24, hidden=24, layers=1)
ARTIFACTS = exported(MODEL, phonograd.TrainingConfig(minibatch=2, bptt=5))
VOCABULARY = words(V)
FORM = CanarySettings(insertions=(1, 8), each=1, words=6, form="w1 w2")
GENERAL = [f"w{number % 37} w{number % 5} w{number % 7} w{number % 3}" for number in range(200)]
USERS = {
    f"user-{user:02}": [f"w{(user + line) % 31} w{user} w{(user * line) % 29}" for line in range(40)]
    for user in range(12)
}
SIMULATION = phonograd.SimulationSettings(rounds=2, clients_per_round=3, text_bytes=300, test_users=0, seed=5)


def test_exposure_by_rank() -> None:
    losses = np.array([3.0, 3.0, 5.0, 9.0])
    assert [rank_of(losses, loss) for loss in (2.0, 3.0, 4.0, 10.0)] == [1, 1, 3, 5]
    assert exposure_of(1, 1024) == 10
    assert exposure_of(1024, 1024) == 0
    assert exposure_of(4, 1024) == 8


@pytest.mark.parametrize("shape", [-4.0, 1.5])
def test_extrapolation_is_scipys_skew_normal(shape: float) -> None:
    fitted = SkewNormal(20, 3, shape)
    for x in (5.0, 15.0, 20.0, 22.0, 29.0):
        assert fitted.log2_below(x) == pytest.approx(skewnorm.logcdf(x, shape, 20, 3) / math.log(2), rel=1e-3, abs=1e-6)
    values = skewnorm.rvs(shape, 20, 3, size=200_000, random_state=1)
    found = SkewNormal.fit(values)
    for x in (15.0, 20.0, 25.0):
        assert 2 ** found.log2_below(x) == pytest.approx(skewnorm.cdf(x, shape, 20, 3), abs=0.01)


def test_extrapolation_has_no_limit_where_ranks_have_one() -> None:
    """20 standard deviations below the mean of a normal distribution: Φ(-20) = 2.75e-89."""
    losses = np.random.default_rng(1).normal(50, 1, 100_000)
    assert -SkewNormal.fit(losses).log2_below(30.0) == pytest.approx(-math.log2(2.75e-89), rel=0.05)
    assert math.isfinite(SkewNormal.fit(losses).log2_below(-1000.0))
    assert SkewNormal.fit(losses).log2_below(500.0) == 0


def test_auc_and_true_positives_by_hand() -> None:
    members, others = np.array([3.0, 2.0, 1.0]), np.array([2.0, 0.0])
    assert membership.auc_of(members, others) == (2 + 1.5 + 1) / 6
    assert membership.auc_of(others, members) == 1 - 4.5 / 6
    assert membership.tpr_of(members, others) == 1 / 3
    many = np.arange(1000.0)
    assert membership.tpr_of(np.array([988.5, 989.5, 2000]), many) == pytest.approx(2 / 3)  # 10 others are above 989


def test_auc_of_two_normal_distributions_is_in_its_interval() -> None:
    """AUC = Φ(d / sqrt 2), and TPR = Φ(d - 2.326) at 1 %."""
    random = np.random.default_rng(3)
    members, others = random.normal(1, 1, 3000), random.normal(0, 1, 3000)
    auc = membership.estimate(membership.auc_of, members, others, 1)
    assert auc.low < 0.7602 < auc.high
    assert 0.02 < auc.high - auc.low < 0.03  # 4 standard errors of 0.006
    tpr = membership.estimate(membership.tpr_of, members, others, 1)
    assert tpr.low < 0.0924 < tpr.high
    assert tpr.low < tpr.value < tpr.high


class Chain:
    """Scores of the next word by the last one alone: rows of a table [V, V]."""

    def __init__(self, table: Floats):
        self.table = table
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def logits(self, tokens: Ids) -> Floats:
        return self.table[tokens.reshape(-1)].copy()


def test_losses_of_all_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SCORES_BYTES", 4 * V * 5 * 12)  # three batches of 12 pairs, 5 tokens each
    secrets = Secrets.of(FORM, VOCABULARY, seed=1)
    assert len(set(secrets.words)) == 6
    scores = np.random.default_rng(1).normal(0, 2, (V, V)).astype(np.float32)
    chances = np.exp(scores.astype(np.float64))
    bits = -np.log2(chances / chances.sum(axis=1, keepdims=True))
    model = Chain(scores)
    losses = secrets.losses(model, V)
    assert model.resets == 3
    for a, b, c in ((0, 0, 0), (5, 2, 1), (1, 2, 5), (3, 3, 4)):
        path = [secrets.before[-1], *secrets.words[[a, b, c]]]
        assert losses[a, b, c] == pytest.approx(sum(bits[path[:-1], path[1:]]), rel=1e-5)


def test_the_engine_reads_a_secret_after_its_form() -> None:
    secrets = Secrets.of(FORM, VOCABULARY, seed=1)
    engine = NativeBackend(ARTIFACTS, None, BackendOptions())
    losses = secrets.losses(engine, V)
    told = np.concatenate((secrets.before, secrets.words[[4, 0, 2]]))[:, None]
    whole, form = (log_likelihoods(engine, V, ids)[0] for ids in (told, told[:-3]))
    assert losses[4, 0, 2] == pytest.approx((form - whole) / math.log(2), abs=1e-4)
    engine.close()


def test_a_secret_is_ranked_among_those_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    after = np.arange(8.0).reshape(2, 2, 2)
    models = iter((after[::-1], after))
    monkeypatch.setattr(canaries, "_losses", lambda *_: next(models))
    secrets = Secrets(np.array([5]), np.array([2, 3]))
    drawn = (
        Canary("a", 1, (0, 0, 0)),
        Canary("b", 4, (0, 0, 1)),
        Canary("c", 4, (1, 0, 0)),
        Canary(None, 0, (0, 1, 0)),
    )
    found = canaries.measure(ARTIFACTS, Plan(secrets, drawn, {}), Path(), Path(), 1, 1)
    assert found.space == 8
    assert [secret.rank for secret in found.secrets] == [1, 1, 3, 1]  # 0 and 1 are secrets; 2, a control's, and 3 not
    assert [secret.exposure for secret in found.secrets] == pytest.approx([3, 3, 3 - math.log2(3), 3])
    assert [secret.before for secret in found.secrets] == pytest.approx([1, 1, 3, 3 - math.log2(4)])


@pytest.mark.long
def test_another_model_exposes_secrets_no_more_than_controls(tmp_path: Path) -> None:
    """The model trained on none: their exposure is log2 n - log2 n! / n of n = 216, and changes by chance alone."""
    settings = replace(FORM, insertions=(0, 1), each=12, controls=150)
    plan = canaries.plan(settings, encoded_users(), sorted(USERS), VOCABULARY, 300, seed=1)
    other = tmp_path / "other.safetensors"
    save_tensors(other, phonograd.seeded_weights(MODEL, 99))
    controls, written = canaries.measure(ARTIFACTS, plan, ARTIFACTS.path("weights.safetensors"), other, 1, 1).changes
    assert (controls.insertions, controls.secrets, controls.above_controls) == (0, 150, None)
    mean = math.log2(216) - math.lgamma(217) / 216 / math.log(2)
    for kind in (controls, written):
        assert kind.before == pytest.approx(mean, abs=0.2 if kind is controls else 1.5)
        assert kind.standard_error is not None and kind.standard_error > 0
        assert abs(kind.change) < 4 * kind.standard_error
    assert written.above_controls is not None
    assert written.above_controls.low < 0 < written.above_controls.high


def test_the_change_is_held_against_the_controls() -> None:
    def secret(number: int, before: float, after: float) -> Exposure:
        return Exposure(f"{after}" if number else None, number, 1, after, after, before)

    controls = [secret(0, 1, 2), secret(0, 3, 3)]
    none, one, four = canaries.changes_of([secret(4, 1, 4), secret(4, 2, 4), secret(1, 1, 1), *controls], 1)
    assert (none.insertions, none.before, none.exposure, none.change, none.standard_error) == (0, 2, 2.5, 0.5, 0.5)
    assert (one.insertions, one.secrets, one.change, one.standard_error) == (1, 1, 0, None)
    assert (four.before, four.exposure, four.change, four.standard_error) == (1.5, 4, 2.5, 0.5)
    assert (none.above_controls, four.above_controls) == (None, Estimate(2, 1, 3))
    (alone,) = canaries.changes_of([secret(4, 1, 4)], 1)
    assert alone.above_controls is None


def test_true_positives_at_one_per_cent_need_a_hundred_others() -> None:
    changed = ExposureChange(16, 2, 1, 3, 2, 0.5, Estimate(1.5, 1, 2))
    for others, shown in ((99, False), (100, True)):
        some = Membership(120, others, Estimate(0.7, 0.6, 0.8), Estimate(0.2, 0.1, 0.3), 2, 1)
        found = attacks._figures("run", AttackRecord(3, None, Canaries(8, (), (changed,)), some))
        assert ("TPR at 1 %" in found["rows"]["run"]) == shown
        secrets = found["rows"]["run, 16 times"]
        assert (secrets["change"], secrets["change above controls, low"]) == (2, 1)
        assert found["facts"]["run: others"] == others


@pytest.mark.parametrize(("text_bytes", "seed"), [(60, 0), (100, 1), (333, 2), (5000, 3)])
def test_all_insertions_are_in_the_text_of_the_first_round(text_bytes: int, seed: int) -> None:
    own = [b"w1 w%d w%d" % (line, line % 7) for line in range(30)]
    mixed = plant(own, b"w9", 9, text_bytes, seed)
    first, _ = text_slice(mixed, text_bytes, 0)
    assert first.count(b"w9") == 9
    assert [message for message in mixed if message != b"w9"] == own
    if text_bytes == 5000:
        assert mixed != plant(own, b"w9", 9, text_bytes, seed + 1)


def test_secrets_are_of_different_users_and_differ() -> None:
    settings = CanarySettings(insertions=(0, 1, 2), each=4, controls=18, words=3, form="w1")
    made = canaries.plan(settings, encoded_users(), sorted(USERS), VOCABULARY, 300, seed=1)
    written = [canary for canary in made.canaries if canary.user is not None]
    assert len({canary.user for canary in written}) == len(written) == 8
    assert len({canary.secret for canary in made.canaries}) == 26  # all there are but one
    for canary in written:
        added = [
            message for message in made.users[canary.user] if message.startswith(b"w1 w") and message.count(b" ") == 3
        ]
        assert len(added) == canary.insertions
    with pytest.raises(phonograd.UsageError, match="8 users who take part expected, found 3"):
        canaries.plan(settings, encoded_users(), sorted(USERS)[:3], VOCABULARY, 300, seed=1)
    with pytest.raises(phonograd.UsageError, match="at most 10 bytes expected"):
        canaries.plan(settings, encoded_users(), sorted(USERS), VOCABULARY, 20, seed=1)
    with pytest.raises(ValueError, match="`words` is 3, expected more, as its cube must exceed 27 secrets"):
        replace(settings, controls=19)
    with pytest.raises(phonograd.UsageError, match="60 expected in the vocabulary, found 38"):
        Secrets.of(replace(settings, words=60), VOCABULARY, 1)


def encoded_users() -> dict[str, list[bytes]]:
    return {user: [message.encode() for message in messages] for user, messages in USERS.items()}


@pytest.mark.long
@pytest.mark.learns
def test_a_model_gives_away_what_it_was_trained_on_often(tmp_path: Path, margin: Margin, seed: int) -> None:
    """A secret told eight times is the most likely of 216, after many passes over one user's text."""
    learned = replace(SIMULATION, rounds=1, clients_per_round=1, epochs=40, seed=seed)
    form = replace(FORM, insertions=(8,))
    settings = phonograd.AttackSettings(form, membership_users=6)
    found = phonograd.simulate_attacks(ARTIFACTS, USERS, tmp_path / "run", learned, settings, workers=1)
    assert found.canaries is not None
    assert found.membership is not None
    assert found.canaries.space == 216
    (secret,) = found.canaries.secrets
    assert secret.rank == 1
    assert secret.exposure == pytest.approx(math.log2(216))
    margin("bits of exposure, extrapolated", secret.extrapolated, low=5)
    assert (found.membership.members, found.membership.others) == (1, 6)
    assert found.membership.auc.value == 1
    gap = found.membership.member_score - found.membership.other_score
    margin("how far a member's score is above others'", gap, low=0)
    again = phonograd.simulate_attacks(ARTIFACTS, USERS, tmp_path / "run", learned, settings, workers=2)
    assert again == found


def test_members_are_tested_on_what_they_wrote_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret in the text would tell a member from others."""
    tested: list[list[list[bytes]]] = []
    original = membership.measure

    def measure(workers: Workers, *given: Any) -> Any:
        tested.extend(given[:2])
        return original(workers, *given)

    monkeypatch.setattr(membership, "measure", measure)
    phonograd.simulate_attacks(
        ARTIFACTS, USERS, tmp_path / "run", SIMULATION, phonograd.AttackSettings(FORM), workers=1
    )
    own = {message for messages in encoded_users().values() for message in messages}
    assert [len(side) for side in tested] == [5, 7]
    with pytest.raises(phonograd.UsageError, match="found 0 of 12"):  # whose update is lost took no part
        phonograd.simulate_attacks(
            ARTIFACTS, USERS, tmp_path / "lost", replace(SIMULATION, late_phones=1.0), phonograd.AttackSettings(None)
        )
    assert {message for side in tested for text in side for message in text} <= own


def test_late_updates_count_while_phones_have_their_model() -> None:
    late = replace(SIMULATION, rounds=2, late_phones=1.0)
    plan = [{part.user for part in parts} for parts in islice(schedule(late, list(USERS)), 2)]
    assert users_who_count(late, list(USERS)) == set()
    assert users_who_count(replace(late, deploy_every=2), list(USERS)) == plan[0]


@pytest.mark.long
def test_the_commands(tmp_path: Path, phono: Run) -> None:
    lines = [json.dumps({"user": user, "text": text}) for user, messages in USERS.items() for text in messages]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    (tmp_path / "general.txt").write_text("\n".join(GENERAL))
    inputs = [ARTIFACTS.folder, "--users", tmp_path / "users.jsonl", "--rehearsal", tmp_path / "general.txt"]
    study, out = tmp_path / "study.toml", tmp_path / "canaries"
    study.write_text("""
        workers = 1
        rounds = {count = 2, clients_per_round = 3}
        training.text_bytes = 300
        canaries = {insertions = [1, 4, 0], each = 2, controls = 3, words = 6, form = "w1"}
        membership = {users = 6}
    """)
    inputs += ["--config", study, "--json"]
    form = ["--out", out]
    document = phono("privacy", "canaries", *inputs, *form).document
    assert [secret["insertions"] for secret in document["canaries"]["secrets"]] == [1, 1, 4, 4, 0, 0, 0]
    assert [kind["insertions"] for kind in document["canaries"]["changes"]] == [0, 1, 4]
    assert document["membership"] is None
    shown = phono("privacy", "canaries", *inputs[:-1], *form).out
    assert all(words in shown for words in ("0, controls", "change above controls", "user-"))
    document = phono("privacy", "membership", *inputs, "--out", tmp_path / "members").document
    assert document["canaries"] is None
    assert (document["membership"]["members"], document["membership"]["others"]) == (5, 6)
    assert document["config"]["membership"] == {"users": 6} and "canaries" not in document["config"]
    none = phono("privacy", "canaries", *inputs, *form, "--set", "canaries.insertions=[-1]")
    assert (none.code, "--set canaries.insertions is (-1,), expected a list, each" in none.err) == (2, True)
    every = phono("privacy", "membership", *inputs, "--clients-per-round", 12, "--out", tmp_path / "all")
    assert (every.code, "users who do not expected, found 12 of 12" in every.err) == (2, True)
