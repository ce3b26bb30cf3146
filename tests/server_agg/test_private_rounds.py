"""Rounds of a private strategy, from the draw to the end of the budget."""

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from device_runtime.errors import MissingExtraError
from device_runtime.tensor_file import load_tensors
from server_agg.privacy import sampling
from server_agg.privacy.accountant import PrivateRounds, spent
from server_agg.refusals import LateUpdateError, NotSelectedError
from server_agg.report import read_report
from server_agg.rounds import opening
from server_agg.rounds.keeper import RoundKeeper
from server_agg.security.registry import PhoneRegistry
from server_agg.storage import queries
from server_agg.storage.tables import Round
from tests.server_agg.test_rounds import send
from tests.server_agg.workshop import Workshop, settings_with

PRIVATE: dict[str, object] = {
    "strategy": "dp-fedavg",
    "sampling": 0.5,
    "noise_multiplier": 1.0,
    "clip_norm": 0.1,
    "delta": 1e-5,
    "deadline_seconds": 100.0,
}
PHONES = tuple(f"phone{number}" for number in range(12))


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def private_keeper(workshop: Workshop, state: Path, clock: Clock, **changes: object) -> Iterator[RoundKeeper]:
    keeper = RoundKeeper(workshop.artifacts, state, settings_with(**PRIVATE | changes), clock)
    try:
        yield keeper
    finally:
        keeper.close()


def enrol(keeper: RoundKeeper) -> None:
    for name in PHONES:
        PhoneRegistry(keeper.ledger).add(name, "phone", "90d", "test")
    keeper.tick()


def drawn(keeper: RoundKeeper) -> set[str]:
    with keeper.ledger.reading() as session:
        return queries.selected_phones(session, keeper.current.round)


@pytest.fixture
def known_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same phones and noise in every run. A real draw of a single phone, 1 in 340, would close the round early."""
    chance = random.Random(1)
    monkeypatch.setattr(sampling, "secrets", SimpleNamespace(randbits=chance.getrandbits))
    monkeypatch.setattr(opening, "secrets", SimpleNamespace(token_bytes=chance.randbytes))


def update_of(workshop: Workshop, keeper: RoundKeeper, phone: str) -> Path:
    base = keeper.folder.model(keeper.current.base_sha256)
    return workshop.update(PHONES.index(phone), round=keeper.current.round, base=base)


@pytest.mark.usefixtures("known_draws")
def test_only_the_phones_that_were_drawn_take_part(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        assert "no phone is enrolled to be drawn" in str(keeper.participation("phone0"))
        enrol(keeper)
        chosen = drawn(keeper)
        assert 1 < len(chosen) < len(PHONES)
        outsider = next(name for name in PHONES if name not in chosen)
        assert "not among those drawn" in str(keeper.participation(outsider))
        with pytest.raises(NotSelectedError, match="not among those drawn for round 1"):
            send(keeper, update_of(workshop, keeper, outsider), outsider)
        receipts = [send(keeper, update_of(workshop, keeper, name), name) for name in sorted(chosen)]
        assert [receipt.round_closed for receipt in receipts] == [False] * (len(chosen) - 1) + [True]
        assert keeper.current.round == 2
    entry = read_report(tmp_path / "state")["rounds"][0]
    once = spent([PrivateRounds(0.5, 1.0)], 1e-5)
    assert (entry["epsilon"], entry["epsilon_rdp"]) == pytest.approx((once.epsilon, once.epsilon_rdp))
    assert 0 < once.epsilon < once.epsilon_rdp
    assert (entry["accepted"], entry["ending"]) == (len(chosen), "full")


@pytest.mark.usefixtures("known_draws")
def test_a_deadline_ends_a_private_round_however_few_came(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        enrol(keeper)
        clock.now += 99
        keeper.tick()
        assert keeper.current.round == 1
        clock.now += 2
        keeper.tick()
        assert keeper.current.round == 2
        assert keeper.current.base_sha256 == workshop.base_sha256  # nobody came: the model is as it was
        name = min(drawn(keeper))
        send(keeper, update_of(workshop, keeper, name), name)
        clock.now += 101
        keeper.tick()
        assert keeper.current.round == 3
        assert keeper.current.base_sha256 != workshop.base_sha256
    first, second, _ = read_report(tmp_path / "state")["rounds"]
    assert 0 < first["epsilon"] < second["epsilon"]  # an empty round is published too
    assert (first["model_sha256"], first["ending"]) == (workshop.base_sha256, "deadline")


@pytest.mark.usefixtures("known_draws")
def test_the_noise_is_of_the_stated_size_and_its_key_is_gone(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock, noise_multiplier=4.0) as keeper:
        enrol(keeper)
        with keeper.ledger.reading() as session:
            assert len(session.get_one(Round, 1).noise_key or b"") == 32
        name = min(drawn(keeper))
        still = load_tensors(workshop.base_path)
        base = keeper.folder.model(keeper.current.base_sha256)
        send(keeper, workshop.update(3, base=base, trained=still), name)
        clock.now += 101
        keeper.tick()
        with keeper.ledger.reading() as session:
            assert session.get_one(Round, 1).noise_key is None
        model = load_tensors(keeper.folder.model(keeper.current.base_sha256))
    noise = np.concatenate([(model[key] - still[key]).ravel() for key in still])
    expected = 4.0 * 0.1 / (0.5 * len(PHONES))  # z S / (q W)
    assert len(noise) > 1000
    assert noise.std() == pytest.approx(expected, rel=4 / np.sqrt(2 * len(noise)))  # 4 standard errors


@pytest.mark.usefixtures("known_draws")
def test_a_round_closed_again_after_a_crash_has_the_same_noise(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, made = Clock(), []
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        enrol(keeper)
        name = min(drawn(keeper))
        send(keeper, update_of(workshop, keeper, name), name)
        clock.now += 101
        with monkeypatch.context() as patch:
            patch.setattr("server_agg.rounds.closing.opening.add_round", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                keeper.tick()
        made.append({path.name for path in keeper.folder.models.iterdir()})
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        assert keeper.current.round == 2
        made.append({path.name for path in keeper.folder.models.iterdir()})
    assert made[0] == made[1]
    assert len(made[1]) == 2  # the exported one and round 1's, once


def test_no_round_passes_the_budget(workshop: Workshop, tmp_path: Path) -> None:
    clock, once = Clock(), PrivateRounds(0.5, 1.0)
    budget = spent([once, once], 1e-5).epsilon + 1e-6
    with private_keeper(workshop, tmp_path / "state", clock, epsilon_budget=budget) as keeper:
        enrol(keeper)
        for _ in range(2):
            clock.now += 101
            keeper.tick()
        assert keeper.current.round == 3
        assert f"more than the privacy budget, epsilon {budget:g}" in str(keeper.current.halted)
        clock.now += 1000
        keeper.tick()
        assert keeper.current.round == 3
        for name in PHONES:
            with pytest.raises(NotSelectedError, match="the model is final"):
                send(keeper, update_of(workshop, keeper, name), name)
    with private_keeper(workshop, tmp_path / "state", clock, epsilon_budget=budget) as keeper:
        assert keeper.current.halted is not None


def test_rolling_back_gives_no_epsilon_back(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        enrol(keeper)
        clock.now += 101
        keeper.tick()
        keeper.rollback(0)
        clock.now += 101
        keeper.tick()
    rounds = read_report(tmp_path / "state")["rounds"]
    assert [entry["ending"] for entry in rounds] == ["deadline", "rollback", "deadline", None]
    assert rounds[2]["epsilon"] == pytest.approx(spent([PrivateRounds(0.5, 1.0, 2)], 1e-5).epsilon)


def test_no_key_outlives_its_round(workshop: Workshop, tmp_path: Path) -> None:
    """However a round ends; and the key of the next is another, whatever a program's own generators are at."""
    clock, keys = Clock(), []
    with private_keeper(workshop, tmp_path / "state", clock) as keeper:
        for end in ("rollback", "deadline"):
            random.seed(1)
            np.random.seed(1)
            if end == "rollback":
                keeper.rollback(0)
            else:
                enrol(keeper)
                clock.now += 101
                keeper.tick()
            with keeper.ledger.reading() as session:
                rounds = queries.all_rounds(session)
            assert [round_.noise_key for round_ in rounds[:-1]] == [None] * (len(rounds) - 1)
            keys.append(rounds[-1].noise_key)
    assert [len(key or b"") for key in keys] == [32, 32]
    assert keys[0] != keys[1]


@pytest.mark.usefixtures("known_draws")
def test_a_late_update_has_no_place_in_a_round_that_draws_its_phones(workshop: Workshop, tmp_path: Path) -> None:
    """Its phone was drawn for another round: what it learned would count beyond what sampling accounts for."""
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock, sampling=1.0, late="next") as keeper:
        enrol(keeper)
        late = update_of(workshop, keeper, "phone1")
        send(keeper, update_of(workshop, keeper, "phone0"), "phone0")
        clock.now += 101
        keeper.tick()
        assert "phone1" in drawn(keeper)
        with pytest.raises(LateUpdateError, match="is of round 1, which is over; round 2 is open"):
            send(keeper, late, "phone1")


@pytest.mark.usefixtures("known_draws")
def test_a_revoked_phone_is_not_drawn(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_keeper(workshop, tmp_path / "state", clock, sampling=1.0) as keeper:
        enrol(keeper)
        assert drawn(keeper) == set(PHONES)
        PhoneRegistry(keeper.ledger).revoke("phone3", "test")
        clock.now += 101
        keeper.tick()
        assert drawn(keeper) == set(PHONES) - {"phone3"}


def test_a_private_server_does_not_start_without_an_accountant(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'phonograd\[dp\]'"):
        RoundKeeper(workshop.artifacts, tmp_path / "state", settings_with(**PRIVATE))


def test_a_private_strategy_needs_a_deadline(workshop: Workshop) -> None:
    with pytest.raises(ValueError, match="deadline_seconds is None, expected a deadline for dp-fedavg"):
        settings_with(**PRIVATE | {"deadline_seconds": None})
