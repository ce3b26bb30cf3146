"""Masked rounds in the native library, held to the reference that is written from FORMAT.md."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import asdict

from phonograd.device_runtime.base.errors import StateError, TookPartError, UpdateError, UsageError
from phonograd.device_runtime.formats.tensor_file import TensorFile, save_tensors
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum, check_settings
from phonograd.device_runtime.masked.phone import certify, new_identity, public_identity
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from tests.native.masked_phones import (
    SETTINGS,
    Document,
    Fleet,
    Sent,
    Sharing,
    collect_answers,
    message,
    mix_phones,
    of_all,
    open_cohort,
    shares_for,
    sign_members,
    until_list,
    until_shares,
    without,
)
from tests.reference import masked as reference
from tests.reference.codecs import hadamard
from tests.support.phone_command import Place

BOTH: tuple[tuple[Any, Any], ...] = ((MaskedCohort, MaskedSum), (reference.Cohort, reference.Sum))


@pytest.mark.parametrize(
    "kinds, count, dead, cap",
    [
        pytest.param(BOTH[0], 3, 0, 200, id="three"),
        pytest.param(BOTH[0], 10, 3, 1, id="ten"),
        pytest.param(BOTH[1], 10, 3, 200, id="ten, by the reference"),
        pytest.param(BOTH[0], 52, 8, 1, id="a sparse graph", marks=pytest.mark.long),
    ],
)
def test_a_round_of_native_and_reference_phones_gives_the_plain_sum(
    tmp_path: Path, kinds: tuple[Any, Any], count: int, dead: int, cap: int
) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings["weight_cap"] = cap
    phones, values = mix_phones(fleet, count)
    found = Sharing(*until_shares(phones))
    shares = found.shares
    cohort = found.cohort(kinds[0], fleet)
    about = cohort.about(fleet.parameters)
    total = kinds[1](about.values, about.width)
    without(phones, sorted(phones)[: dead // 2])  # they sent shares, and no update
    replies = {name: {"members": sorted(shares), "shares": shares_for(name, shares)} for name in phones}
    found.signatures = sign_members(phones, replies)
    for sent in of_all(phones, {}).values():
        assert sent is not None
        total.add(cohort, sent[1])
    alive = sorted(phones)
    cohort.list(alive, found.signatures)
    of_all(phones, {})
    signatures = {
        name: message(sent, "agreement")["signature"] for name, sent in of_all(phones, found.answer_list(alive)).items()
    }
    for name, signature in signatures.items():
        cohort.check_agreement(name, signature)
    without(phones, sorted(phones)[: dead - dead // 2])  # they sent an update, and no answer
    answers = {name: message(sent, "answer") for name, sent in of_all(phones, {"signatures": signatures}).items()}
    for name, answer in answers.items():
        cohort.check_answer(name, answer)
    assert set(of_all(phones, {}).values()) == {None}

    unmasked = total.unmask(cohort, answers)
    plain = sum(values[name] for name in alive)
    assert (unmasked.wrong, unmasked.weight) == ((), plain[-1])
    np.testing.assert_array_equal(total.values(), plain)
    decoded = total.decode(cohort, float(unmasked.weight), about.elements)
    expected = reference.Grid(fleet.text, fleet.base.sha256(), fleet.parameters).decode(plain[:-1], unmasked.weight)
    np.testing.assert_allclose(decoded, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("curious, dropouts", [(0.1, 0.3), (0.3, 0.1)])
def test_the_graph_is_the_references(tmp_path: Path, curious: float, dropouts: float) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings |= {"curious": curious, "dropouts": dropouts}
    phones, _ = mix_phones(fleet, 60)
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    for count in (3, 4, 10, 49, 50, 51, 60):
        assert open_cohort(MaskedCohort, fleet).fix(keys[:count]) == open_cohort(reference.Cohort, fleet).fix(
            keys[:count]
        )


@pytest.mark.parametrize("bits, support, error", [(4, 1, 0.35), (8, 1, 0.02), (16, 1, 1e-4)])
def test_a_grid_update_is_the_delta_within_its_grid(tmp_path: Path, bits: int, support: int, error: float) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings |= {"bits": bits, "support": support, "clip": 0.1}
    grid = reference.Grid(fleet.text, fleet.base.sha256(), fleet.parameters)
    values = fleet.values(fleet.grid("a", 3))
    delta = np.concatenate([one.ravel() for one in fleet.delta(3).values()])
    found = grid.decode(values[:-1].astype(float), 1.0)[: len(delta)]
    assert np.abs(values[:-1]).max() <= grid.level
    assert np.linalg.norm(found - delta) < error * np.linalg.norm(delta)
    # Rounding is random: another update of the same delta has other codes, and the mean of both is nearer.
    again = fleet.values(fleet.grid("b", 3))
    assert (again != values).any()
    mean = grid.decode((values + again)[:-1].astype(float), 2.0)[: len(delta)]
    assert np.linalg.norm(mean - delta) < 0.85 * np.linalg.norm(found - delta)


def test_each_code_of_a_large_model_is_next_to_its_value(tmp_path: Path) -> None:
    """The model has several tiles of columns, the last one not full."""
    random = np.random.default_rng(1)
    shape, columns = (273, 1024), 69
    base, moved = random.standard_normal(shape, "f4"), random.standard_normal(shape, "f4") / 1e4
    save_tensors(tmp_path / "base", {"w": base})
    text = json.dumps(SETTINGS | {"bits": 16})
    with TensorFile(tmp_path / "base") as file:
        write_update(tmp_path / "grid", file, {"w": base + moved}, UpdateInfo(file.sha256(), 1, 1, "rows-f32", 0), text)
        grid = reference.Grid(text, file.sha256(), base.size)
    padded = np.zeros(4096 * columns, "f4")
    padded[: base.size] = (base + moved - base).reshape(-1)
    expected = hadamard(padded.reshape(4096, columns).T * grid.signs) / (64 * grid.step)
    with TensorFile(tmp_path / "grid") as file:
        codes = file.read("codes").reshape(columns, 4096)
    assert np.abs(codes - expected).max() < 1.01  # the reference adds in another order


def test_a_support_is_unbiased_over_models(tmp_path: Path) -> None:
    """The signs of each base are others: over many, the mean of what is sent is the delta."""
    means = []
    for seed in range(40):
        (tmp_path / str(seed)).mkdir()
        fleet = Fleet(tmp_path / str(seed))
        fleet.settings |= {"support": 16, "clip": 0.1 + seed / 1e6}  # other settings, other signs
        values = fleet.values(fleet.grid("a", 3))
        grid = reference.Grid(fleet.text, fleet.base.sha256(), fleet.parameters)
        assert len(values) == grid.columns * 256 + 1
        means.append(grid.decode(values[:-1].astype(float), 1.0)[: fleet.parameters])
    delta = np.concatenate([one.ravel() for one in fleet.delta(3).values()])
    one, mean = (np.linalg.norm(found - delta) / np.linalg.norm(delta) for found in (means[0], np.mean(means, 0)))
    assert 2 < one < 4  # half of the elements are padding: sqrt(15 / 2)
    assert mean < 0.75  # sqrt(15 / 2 / 40)


def test_a_long_delta_is_clipped(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    grid = reference.Grid(fleet.text, fleet.base.sha256(), fleet.parameters)
    found = grid.decode(fleet.values(fleet.grid("a", 3, norm=70.0))[:-1].astype(float), 1.0)
    assert np.linalg.norm(found) == pytest.approx(fleet.settings["clip"], rel=0.02)


def test_a_killed_phone_sends_the_same_again(tmp_path: Path) -> None:
    """Reopen a phone before each step: what it drew must be on disk."""
    fleet = Fleet(tmp_path)
    phones, _ = mix_phones(fleet, 5)
    grid = tmp_path / "p000.grid"

    def reopen(sent: Sent) -> Sent:
        before = sent[1].read_bytes() if sent is not None and isinstance(sent[1], Path) else sent
        phones["p000"].phone.close()
        phones["p000"] = fleet.phone("p000", grid)
        again = phones["p000"].first()
        assert (again[1].read_bytes() if isinstance(before, bytes) else again) == before
        return again

    reopen(phones["p000"].first())
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    sent = of_all(phones, {"cohort": keys})
    reopen(sent["p000"])
    draws = {name: message(one, "draws")["draw"] for name, one in sent.items()}
    sent = of_all(phones, {"draws": draws})
    reopen(sent["p000"])
    shares = {name: message(one, "shares") for name, one in sent.items()}
    sent = of_all(phones, {name: {"members": sorted(shares), "shares": shares_for(name, shares)} for name in phones})
    reopen(sent["p000"])
    members = {name: message(one, "members")["signature"] for name, one in sent.items()}
    reopen(of_all(phones, {})["p000"])
    reopen(of_all(phones, {})["p000"])
    sent = of_all(phones, {"alive": sorted(phones), "signatures": members})
    reopen(sent["p000"])
    signatures = {name: message(one, "agreement")["signature"] for name, one in sent.items()}
    sent = of_all(phones, {"signatures": signatures})
    reopen(sent["p000"])
    assert of_all(phones, {})["p000"] is None
    phones["p000"].phone.close()
    assert sorted(path.name for path in (tmp_path / "p000.state").iterdir()) == ["history.json"]
    with pytest.raises(TookPartError, match="has taken part in round 1"):
        fleet.phone("p000", grid)


def test_a_folder_in_use_and_a_round_that_was_are_two_errors(place: Place, tmp_path: Path) -> None:
    """A driver learns from it whether to come again."""
    fleet = Fleet(tmp_path)
    grid = fleet.grid("a", 1)
    phone = fleet.phone("a", grid)
    line = (
        "mask",
        grid,
        "--round",
        1,
        "--phone",
        "a",
        "--state",
        tmp_path / "a.state",
        "--identity",
        tmp_path / "a.key",
    )
    with pytest.raises(StateError, match="another process"):
        fleet.phone("a", grid)
    assert place.run(*line).code == 17
    phone.phone.close()
    assert place.run(*line).only("request")["path"] == "/v1/masked/keys"
    (tmp_path / "a.state" / "round.json").unlink()
    with pytest.raises(TookPartError, match="has taken part in round 1; a later round expected, found 1"):
        fleet.phone("a", grid)
    assert place.run(*line).code == 29


def test_a_share_says_nothing_of_the_secret_or_of_another_share(trio: tuple[Fleet, dict[str, Any]]) -> None:
    """The differences of two holders' shares of one secret are random bytes, in which all bits are as often 0 as 1."""
    fleet, phones = trio
    _, _, answers = collect_answers(fleet, phones)
    differences = b""
    for owner in "abcde":
        shares = [bytes.fromhex(answer["shares"][owner]) for name, answer in answers.items() if name != owner]
        own = bytes.fromhex(answers[owner]["self"])
        for one, other in itertools.pairwise([own, *shares]):
            differences += bytes(x ^ y for x, y in zip(one, other, strict=True))
    ones = np.unpackbits(np.frombuffer(differences, np.uint8)).reshape(-1, 8).mean(0)
    assert len(differences) == 640
    assert np.abs(ones - 0.5).max() < 0.13  # 6.5 standard deviations


def test_fewer_shares_than_the_threshold_give_nothing(trio: tuple[Fleet, dict[str, Any]]) -> None:
    fleet, phones = trio
    cohort, total, answers = collect_answers(fleet, phones, dead="e")
    threshold = 2
    few = {name: answers[name] for name in sorted(answers)[: threshold - 1]}
    with pytest.raises(UpdateError, match=f"{threshold} shares of its secret expected, found {threshold - 1}"):
        total.unmask(cohort, few)


def test_a_wrong_share_is_found_and_the_sum_is_right(trio: tuple[Fleet, dict[str, Any]]) -> None:
    fleet, phones = trio
    values = {name: fleet.values(fleet.folder / f"{name}.grid") for name in phones}
    cohort, total, answers = collect_answers(fleet, phones, dead="e")
    share = bytearray.fromhex(answers["b"]["shares"]["e"])
    share[5] ^= 1
    answers["b"]["shares"]["e"] = share.hex()
    unmasked = total.unmask(cohort, answers)
    assert unmasked.wrong == ("b",)
    np.testing.assert_array_equal(total.values(), sum(values[name] for name in "abcd"))


def test_another_self_mask_is_refused(trio: tuple[Fleet, dict[str, Any]]) -> None:
    fleet, phones = trio
    cohort, _, answers = collect_answers(fleet, phones)
    with pytest.raises(UpdateError, match="phone a: another self mask"):
        cohort.check_answer("a", answers["a"] | {"self": answers["b"]["self"]})


def test_a_sum_that_no_codes_have_fails(trio: tuple[Fleet, dict[str, Any]]) -> None:
    fleet, phones = trio
    found = until_list(phones)
    cohort = found.cohort(MaskedCohort, fleet)
    about = cohort.about(fleet.parameters)
    total = MaskedSum(about.values, about.width)
    cohort.list(sorted(phones), found.signatures)
    for name in "abcd":  # e is alive, and its update is not in the sum
        total.add(cohort, found.files[name])
    sent = of_all(phones, found.answer_list(sorted(phones)))
    signatures = {name: message(one, "agreement")["signature"] for name, one in sent.items()}
    answers = {name: message(one, "answer") for name, one in of_all(phones, {"signatures": signatures}).items()}
    with pytest.raises(UpdateError, match="no sum of codes"):
        total.unmask(cohort, answers)


@pytest.mark.parametrize("change", ["cut", "cohort", "bits"])
def test_a_damaged_masked_update_is_refused(trio: tuple[Fleet, dict[str, Any]], change: str) -> None:
    fleet, phones = trio
    found = until_list(phones)
    cohort = open_cohort(MaskedCohort, fleet)
    about = cohort.about(fleet.parameters)
    cohort.fix(found.keys if change != "cohort" else found.keys[:4])
    cohort.draws(found.draws if change != "cohort" else {name: found.draws[name] for name in "abcd"})
    data = found.files["a"].read_bytes()
    path = fleet.folder / "changed"
    if change == "cut":
        path.write_bytes(data[:-9])
    elif change == "bits":
        path.write_bytes(data.replace(b'"bits":"14"', b'"bits":"15"'))
    else:
        path.write_bytes(data)
    with pytest.raises(UpdateError, match="changed: "):
        MaskedSum(about.values, about.width).add(cohort, path)


@pytest.mark.parametrize(
    "change",
    [{}, {"bits": 4, "support": 16, "weight_cap": 200}, {"noise": 0.01, "cohort": 50, "min_cohort": 20}],
)
def test_what_settings_mean_is_the_references(tmp_path: Path, change: Document) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings |= change
    found, expected = (open_cohort(kind, fleet).about(fleet.parameters) for kind, _ in BOTH)
    assert asdict(found) == pytest.approx(asdict(expected), rel=1e-9)
    bare = check_settings(json.dumps(fleet.settings | {"noise": 0}))
    plain = 2 * fleet.settings["cohort"] * fleet.settings["weight_cap"] * (2 ** (fleet.settings["bits"] - 1) - 1) + 1
    assert (bare.width, bare.sensitivity, bare.honest) == (plain.bit_length(), found.sensitivity, found.honest)


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"bits": 5}, "`bits` 5: expected 4, 8 or 16"),
        ({"clip": 0}, "`clip` 0: expected a number from"),
        ({"cohort": 2}, "`cohort` 2: expected a whole number from 3"),
        ({"min_cohort": 65}, "`min_cohort` 65: expected a whole number from 3 to 64"),
        ({"weight_cap": 1 << 20}, "sums of 34 bits, at most 31 expected"),
        ({"curious": 0.5, "dropouts": 0.5}, "must agree"),
        ({"min_cohort": 3, "cohort": 6, "curious": 0.2, "dropouts": 0.4}, "of 5 phones: 4 must agree, 3 may be left"),
        ({"colour": 1}, "unknown `colour`"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, change: Document, expected: str) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings |= change
    with pytest.raises(UsageError, match=expected):
        open_cohort(MaskedCohort, fleet).about(fleet.parameters)
    with pytest.raises(UsageError, match="settings of the masked round|a cohort of"):
        fleet.grid("a", 1)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    public = new_identity(path)
    assert public_identity(path) == public and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="key: exists; a key is never replaced"):
        new_identity(path)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="key: others may read this key"):
        public_identity(path)
    path.chmod(0o600)
    path.write_text("something else\n")
    with pytest.raises(UsageError, match="key: a key expected"):
        public_identity(path)
    with pytest.raises(UsageError, match="expected a name of 1 to 64"):
        certify(tmp_path / "key", "a b", public)


def test_what_is_no_grid_update_is_refused(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    grid = fleet.grid("a", 1)
    with pytest.raises(UpdateError, match="grid update expected|no grid update"):
        fleet.phone("a", fleet.base.path)
    data = bytearray(grid.read_bytes())
    data[-600] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(UpdateError, match="damaged: "):
        fleet.phone("a", tmp_path / "damaged")
    with TensorFile(grid) as file:
        assert json.loads(file.metadata["settings"]) == fleet.settings


@pytest.mark.parametrize("sigma", [0.7, 2000.0])
def test_noise_of_phones_adds_up_to_a_gaussian(tmp_path: Path, sigma: float) -> None:
    """Sums of values less the plain ones: mean 0, the variances added, a Gaussian's tails, and no weight is touched."""
    fleet = Fleet(tmp_path)
    step = reference.Grid(fleet.text, fleet.base.sha256(), fleet.parameters).step
    fleet.settings |= {"noise": sigma * step / fleet.settings["clip"]}
    phones = {name: fleet.phone(name, fleet.grid(name, seed)) for seed, name in enumerate("abcd")}
    plain = sum(fleet.values(tmp_path / f"{name}.grid") for name in phones)
    cohort, total, answers = collect_answers(fleet, phones)
    assert total.unmask(cohort, answers).weight == 4
    noise = (total.values() - plain)[:-1]
    x = np.arange(-10 * round(2 * sigma + 1), 10 * round(2 * sigma + 1) + 1)
    chances = np.exp(-(x**2) / (2 * 4 * sigma**2))  # a discrete Gaussian's: a sum of them is nearly one
    chances /= chances.sum()
    spread = np.sqrt((chances * x**2).sum())
    assert abs(noise.mean()) < 5 * spread / np.sqrt(len(noise))
    assert noise.std() == pytest.approx(spread, rel=5 / np.sqrt(2 * len(noise)))
    for far in (0.5, 1, 2):
        expected = chances[np.abs(x) > far * 2 * sigma].sum()
        assert np.mean(np.abs(noise) > far * 2 * sigma) == pytest.approx(expected, abs=5 * 0.5 / np.sqrt(len(noise)))
    assert np.abs(noise).max() < 6.5 * spread
