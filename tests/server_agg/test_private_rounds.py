"""Rounds of a private strategy, from the draw to the end of the budget."""

import math
import random
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.client.server_client import Connection, current_round, upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.server_agg.refusals import LateUpdateError, NotSelectedError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import report_rows
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.sums import epsilon_spent
from tests.server_agg.coordinators import send
from tests.server_agg.dashboard_pages import rows_of
from tests.server_agg.private_runs import (
    ENDLESS,
    NOISE,
    PHONES,
    PRIVATE,
    drawn_phones,
    end_round,
    enrol,
    private_coordinator,
    update_of,
)
from tests.server_agg.workshop import Clock, Workshop, client_of, run_server, settings_with
from tests.support.waiting import PATIENCE_SECONDS


@pytest.mark.usefixtures("known_draws")
def test_only_the_phones_that_were_drawn_take_part(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        assert "no phone is sampled before 1 are enrolled" in str(coordinator.participation("phone0"))
        enrol(coordinator)
        chosen = drawn_phones(coordinator)
        assert 1 < len(chosen) < len(PHONES)
        outsider = next(name for name in PHONES if name not in chosen)
        assert "not selected for round 1" in str(coordinator.participation(outsider))
        with pytest.raises(NotSelectedError, match="not selected for round 1"):
            send(coordinator, update_of(workshop, coordinator, outsider), outsider)
        for name in sorted(chosen):
            assert not send(coordinator, update_of(workshop, coordinator, name), name).round_closed
        clock.now += 99
        coordinator.tick()
        assert coordinator.current.round == 1  # when its model appears does not tell whether all of them came
        clock.now += 2
        coordinator.tick()
        assert coordinator.current.round == 2
    entry = read_report(tmp_path / "state")["rounds"][0]
    assert entry["epsilon"] == pytest.approx(privacy_spent([PrivateRounds(0.5, NOISE)], 1e-5).epsilon)
    assert (entry["accepted"], entry["ending"]) == (len(chosen), "deadline")


@pytest.mark.usefixtures("known_draws")
def test_a_deadline_ends_a_private_round_however_few_came(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        enrol(coordinator)
        clock.now += 99
        coordinator.tick()
        assert coordinator.current.round == 1
        clock.now += 2
        coordinator.tick()
        assert coordinator.current.round == 2
        noise_alone = coordinator.current.base_sha256
        assert noise_alone != workshop.base_sha256  # nobody came, which does not show
        name = min(drawn_phones(coordinator))
        send(coordinator, update_of(workshop, coordinator, name), name)
        end_round(coordinator, clock)
        assert coordinator.current.round == 3
        assert coordinator.current.base_sha256 not in (noise_alone, workshop.base_sha256)
    first, second, _ = read_report(tmp_path / "state")["rounds"]
    assert 0 < first["epsilon"] < second["epsilon"]  # an empty round is published too
    assert (first["model_sha256"], first["accepted"], first["ending"]) == (noise_alone, 0, "deadline")


@pytest.mark.usefixtures("known_draws")
def test_the_noise_is_of_the_stated_size(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock, noise_multiplier=4.0) as coordinator:
        enrol(coordinator)
        name = min(drawn_phones(coordinator))
        still = load_tensors(workshop.base_path)
        base = coordinator.folder.model(coordinator.current.base_sha256)
        send(coordinator, workshop.update(3, base=base, trained=still), name)
        end_round(coordinator, clock)
        model = load_tensors(coordinator.folder.model(coordinator.current.base_sha256))
    noise = np.concatenate([(model[key] - still[key]).ravel() for key in still])
    expected = 4.0 * 0.1 / (0.5 * len(PHONES))  # z S / (q W)
    assert len(noise) > 1000
    assert noise.std() == pytest.approx(expected, rel=4 / np.sqrt(2 * len(noise)))  # 4 standard errors


def test_no_round_passes_the_budget(workshop: Workshop, tmp_path: Path) -> None:
    clock, once = Clock(), PrivateRounds(0.5, NOISE)
    budget = privacy_spent([once, once], 1e-5).epsilon + 1e-6
    with private_coordinator(workshop, tmp_path / "state", clock, epsilon_budget=budget) as coordinator:
        enrol(coordinator)
        for _ in range(2):
            end_round(coordinator, clock)
        assert coordinator.current.round == 3
        assert f"exceed the privacy budget, epsilon {budget:g}" in str(coordinator.current.halted)
        clock.now += 1000
        coordinator.tick()
        assert coordinator.current.round == 3
        for name in PHONES:
            with pytest.raises(NotSelectedError, match="the model is final"):
                send(coordinator, update_of(workshop, coordinator, name), name)
    with private_coordinator(workshop, tmp_path / "state", clock, epsilon_budget=budget) as coordinator:
        assert coordinator.current.halted is not None


@pytest.mark.parametrize(
    "changes",
    [{"noise_multiplier": 0.24}, {"sampling": 0.1}, {"strategy": "dp-fedsgd", "clip_norm": 0.2, "population": 3}],
    ids=str,
)
def test_a_restart_with_other_settings_gives_no_epsilon_back(
    workshop: Workshop, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Each round counts with the settings it had, for the epsilon that is shown and for the budget."""
    clock, other = Clock(), PRIVATE | changes
    before, after = PrivateRounds(0.5, NOISE, 2), PrivateRounds(other["sampling"], other["noise_multiplier"])
    spent = privacy_spent([before, after], 1e-5)
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        enrol(coordinator)
        for _ in range(2):
            end_round(coordinator, clock)
    changes = changes | {"epsilon_budget": spent.epsilon + 1e-3}
    with private_coordinator(workshop, tmp_path / "state", clock, **changes) as coordinator:
        assert coordinator.current.halted is None
        end_round(coordinator, clock)
        assert "exceed the privacy budget" in str(coordinator.current.halted)
    third = read_report(tmp_path / "state")["rounds"][2]
    assert (third["epsilon"], third["epsilon_rdp"]) == pytest.approx((spent.epsilon, spent.epsilon_rdp))


def test_rolling_back_gives_no_epsilon_back(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        enrol(coordinator)
        end_round(coordinator, clock)
        coordinator.rollback(0)
        end_round(coordinator, clock)
    rounds = read_report(tmp_path / "state")["rounds"]
    assert [entry["ending"] for entry in rounds] == ["deadline", "rollback", "deadline", None]
    assert rounds[2]["epsilon"] == pytest.approx(privacy_spent([PrivateRounds(0.5, NOISE, 2)], 1e-5).epsilon)


def test_no_key_outlives_its_round(workshop: Workshop, tmp_path: Path) -> None:
    """No file has it, however a round ends; seeding a program's own generators does not bring it back."""
    clock, keys = Clock(), []
    with private_coordinator(workshop, tmp_path / "state", clock) as coordinator:
        for end in ("rollback", "deadline"):
            random.seed(1)
            np.random.seed(1)
            keys.append(coordinator.folder.noise_keys.get_or_create(coordinator.current.round))
            if end == "rollback":
                coordinator.rollback(0)
            else:
                enrol(coordinator)
                end_round(coordinator, clock)
            kept = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
            assert len(kept) > 3
            assert not [key for key in keys for content in kept if key in content]
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]


def test_a_key_that_a_crash_left_is_forgotten_at_the_next_start(workshop: Workshop, state: Path) -> None:
    """A crash comes between the end of a round and that of its key."""
    with private_coordinator(workshop, state, Clock()) as coordinator:
        key = coordinator.folder.noise_keys.get_or_create(1)
        coordinator.folder.noise_keys.delete_all_except = lambda number: 1 / 0  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            coordinator.rollback(0)
    assert (state / "noise" / "1").read_bytes() == key
    with private_coordinator(workshop, state, Clock()):
        assert not (state / "noise" / "1").exists()


@pytest.mark.usefixtures("known_draws")
def test_a_late_update_has_no_place_in_a_round_that_draws_its_phones(workshop: Workshop, tmp_path: Path) -> None:
    """Sampling does not account for a phone that was drawn for another round."""
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0, late="next") as coordinator:
        enrol(coordinator)
        late = update_of(workshop, coordinator, "phone1")
        send(coordinator, update_of(workshop, coordinator, "phone0"), "phone0")
        end_round(coordinator, clock)
        assert "phone1" in drawn_phones(coordinator)
        with pytest.raises(LateUpdateError, match="is of round 1, which is closed; round 2 is open"):
            send(coordinator, late, "phone1")


@pytest.mark.usefixtures("known_draws")
def test_a_revoked_phone_is_not_drawn(workshop: Workshop, tmp_path: Path) -> None:
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0) as coordinator:
        enrol(coordinator)
        assert drawn_phones(coordinator) == set(PHONES)
        PhoneRegistry(coordinator.ledger).revoke("phone3", "test")
        end_round(coordinator, clock)
        assert drawn_phones(coordinator) == set(PHONES) - {"phone3"}


def test_a_private_server_does_not_start_without_an_accountant(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[dp\]'"):
        Coordinator(workshop.artifacts, tmp_path / "state", settings_with(**PRIVATE))


def test_a_round_is_accounted_at_the_probability_it_was_drawn_with(workshop: Workshop, tmp_path: Path) -> None:
    """A restart with another `sampling` draws again: phones of the first draw have no place any more."""
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0) as coordinator:
        enrol(coordinator)
        assert drawn_phones(coordinator) == set(PHONES)
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0) as coordinator:
        assert drawn_phones(coordinator) == set(PHONES)
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1e-9) as coordinator:
        assert drawn_phones(coordinator) == set()  # 1 in 80 million draws somebody
        with pytest.raises(NotSelectedError):
            send(coordinator, update_of(workshop, coordinator, "phone0"), "phone0")
        end_round(coordinator, clock)
    (first, _) = read_report(tmp_path / "state")["rounds"]
    assert first["epsilon"] == pytest.approx(privacy_spent([PrivateRounds(1e-9, NOISE)], 1e-5).epsilon)


def test_a_round_with_updates_keeps_its_draw_and_its_probability(workshop: Workshop, tmp_path: Path) -> None:
    clock, private = Clock(), {"noise_multiplier": 4.0}  # with so much noise, PLD has a part in the account
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0, **private) as coordinator:
        enrol(coordinator)
        send(coordinator, update_of(workshop, coordinator, "phone0"), "phone0")
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=0.01, **private) as coordinator:
        assert drawn_phones(coordinator) == set(PHONES)
        end_round(coordinator, clock)
    (first, _) = read_report(tmp_path / "state")["rounds"]
    once = privacy_spent([PrivateRounds(1.0, 4.0)], 1e-5)
    assert (first["epsilon"], first["epsilon_rdp"]) == pytest.approx((once.epsilon, once.epsilon_rdp))
    assert 0 < once.epsilon < once.epsilon_rdp


@pytest.mark.parametrize(
    "openly", [{"strategy": "fedavg", "deadline_seconds": None}, {"noise_multiplier": 0.0}], ids=str
)
def test_epsilon_is_infinite_for_phones_of_rounds_without_noise(
    workshop: Workshop, tmp_path: Path, openly: dict[str, object]
) -> None:
    state, clock = tmp_path / "state", Clock()
    with private_coordinator(
        workshop, state, clock, **{"clients_per_round": 2, "sampling": 1.0} | openly
    ) as coordinator:
        enrol(coordinator)
        for name in PHONES[:2]:
            send(coordinator, update_of(workshop, coordinator, name), name)
        end_round(coordinator, clock)
        assert coordinator.current.round == 2
        with coordinator.ledger.reading() as session:
            assert epsilon_spent(session) == (None if openly.get("strategy") == "fedavg" else math.inf)
    with private_coordinator(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)
        assert coordinator.current.round == 3
    with run_server(workshop, state, **ENDLESS) as server, client_of(server.url) as http:
        overview, metrics = http.get("/").text, http.get("/metrics").text
        report = http.get("/v1/report").json()
    found = [(entry["epsilon"], entry["epsilon_infinite_phones"]) for entry in report["rounds"]]
    once = privacy_spent([PrivateRounds(0.5, NOISE)], 1e-5).epsilon
    assert found[:2] == [(None, 2), (pytest.approx(once), 2)]
    assert [row["epsilon"] for row in report_rows(report)][:2] == [
        "" if openly.get("strategy") == "fedavg" else "infinite for 2 phones",  # it has no epsilon at all
        f"{once:.4g}, infinite for 2 phones",
    ]
    assert "infinite for 2 phones of rounds without noise" in overview
    cells = {row[0]: " ".join(row) for row in rows_of(overview)}
    assert ["∞ for 2" in cells[number] for number in "12"] == [openly.get("strategy") != "fedavg", True]
    assert "phonograd_epsilon_infinite_phones 2.0" in metrics


def test_a_round_without_noise_that_nobody_joined_spends_nothing(workshop: Workshop, tmp_path: Path) -> None:
    state, clock = tmp_path / "state", Clock()
    with private_coordinator(workshop, state, clock, sampling=1.0, noise_multiplier=0.0) as coordinator:
        enrol(coordinator)
        end_round(coordinator, clock)
        assert coordinator.current.round == 2
    with run_server(workshop, state, **ENDLESS) as server, client_of(server.url) as http:
        shown, overview, metrics = (http.get(path).text for path in ("/dashboard/rounds/1", "/", "/metrics"))
        report = http.get("/v1/report").json()
    assert [row["epsilon"] for row in report_rows(report)] == ["nothing in this round", ""]
    assert "<dt>Privacy spent</dt><dd>nothing in this round</dd>" in shown
    assert "∞" not in overview
    assert "phonograd_epsilon" not in metrics


def test_nobody_is_drawn_before_enough_are_enrolled(workshop: Workshop, tmp_path: Path) -> None:
    """The first phone of a fleet would be a round by itself; the deadline runs from the draw on."""
    clock = Clock()
    with private_coordinator(workshop, tmp_path / "state", clock, sampling=1.0, population=len(PHONES)) as coordinator:
        registry = PhoneRegistry(coordinator.ledger)
        for name in PHONES[:-1]:
            registry.add(name, "phone", "90d", "test")
            coordinator.tick()
        assert drawn_phones(coordinator) == set()
        coordinator.rollback(0)  # opens another round
        assert (coordinator.current.round, drawn_phones(coordinator)) == (2, set())
        assert f"no phone is sampled before {len(PHONES)} are enrolled (`population`)" in str(
            coordinator.current.halted
        )
        clock.now += 1000
        coordinator.tick()
        assert coordinator.current.round == 2
        registry.add(PHONES[-1], "phone", "90d", "test")
        coordinator.tick()
        assert (drawn_phones(coordinator), coordinator.current.halted) == (set(PHONES), None)
        assert (coordinator.current.round, coordinator.current.closes_at) == (2, clock.now + 100)


@pytest.mark.usefixtures("known_draws")
def test_phones_do_not_learn_how_many_came(workshop: Workshop, tmp_path: Path) -> None:
    """The exact number is the operator's: docs/privacy.md."""
    with run_server(workshop, tmp_path / "state", **ENDLESS) as server:
        enrol(server.coordinator)
        name, registry = min(drawn_phones(server.coordinator)), PhoneRegistry(server.coordinator.ledger)
        phone = Connection(server.url, registry.rotate(name, "90d", "0s", "test").token)
        data = update_of(workshop, server.coordinator, name)
        assert upload_update(phone, data, None).accepted is None
        assert [current_round(who).accepted for who in (phone, server.owner)] == [None, 1]


@pytest.mark.parametrize("strategy", ["dp-fedavg", "fedavg"])
def test_a_server_that_draws_its_phones_asks_for_tokens_on_loopback_too(
    workshop: Workshop, state: Path, strategy: str
) -> None:
    """Tokens are asked for as long as a private round is open: else anyone could speak for who was drawn."""
    with private_coordinator(workshop, state, Clock(), sampling=1.0, deadline_seconds=1e9) as coordinator:
        enrol(coordinator)
        send(coordinator, update_of(workshop, coordinator, "phone0"), "phone0")
    with (
        run_server(workshop, state, **ENDLESS | {"strategy": strategy, "end_privacy": True}) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as stranger,
    ):
        document = stranger.get("/openapi.json").json()
        assert stranger.get("/v1/round", headers={"Phonograd-Phone": "phone1"}).status_code == 401
        assert document["paths"]["/v1/round"]["get"]["security"] != []


def test_starting_a_private_server_says_what_an_idle_day_costs(
    workshop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with run_server(workshop, tmp_path / "state", **PRIVATE | {"deadline_seconds": 3600.0}):
        pass
    day = privacy_spent([PrivateRounds(0.5, NOISE, 24)], 1e-5)
    assert f"a day without phones costs epsilon {day.epsilon_rdp:.3g} at most (delta 1e-05)" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deadline_seconds": None}, "`deadline_seconds` is None, expected a deadline for dp-fedavg"),
        ({"max_clients": 10}, "`max_clients` is 10, expected none for dp-fedavg: its epsilon holds only if"),
        (
            {"security": SecuritySettings(auth="none")},
            "`auth` is 'none', expected tokens for dp-fedavg: anyone could pose",
        ),
    ],
)
def test_what_would_make_epsilon_wrong_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_with(**PRIVATE | changes)
