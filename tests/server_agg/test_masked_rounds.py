"""Masked rounds: the sum is the plain one, whoever drops out and in any order, and wherever the server is killed."""

import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.masked.cohort import MaskedSum, Unmasked
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.masked import mean
from phonograd.server_agg.refusals import NotOfCohortError
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.storage import cohorts
from phonograd.server_agg.storage.tables import Cohort, StageName
from tests.reference.masked import rule
from tests.server_agg.faults import raising
from tests.server_agg.masked_fleet import STAGE_SECONDS, STAGES, Fleet, masked_settings
from tests.server_agg.masked_rounds import a_round, check_model, open_masked
from tests.server_agg.workshop import Clock, Workshop, small_workshop

LOST = STAGES[1:]  # before which a phone can be lost, once it is in the cohort
NOT_IN_THE_SUM = ("draws", "shares", "members", "upload")


def check_sum(phones: int, dropped: Mapping[str, str], seed: int, masked: Mapping[str, Any]) -> None:
    sums: list[Array] = []

    class KeptSum(MaskedSum):
        def unmask(self, *given: Any) -> Unmasked:
            found = super().unmask(*given)
            sums.append(self.values())
            return found

    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(mean, "MaskedSum", KeptSum)
        workshop, clock = small_workshop(Path(name)), Clock()
        with open_masked(workshop, Path(name) / "state", masked_settings(phones, masked=masked), clock) as coordinator:
            fleet = Fleet(coordinator, workshop, phones, seed, tokens=3)
            fleet.run(dropped, random.Random(seed), clock)
            alive = [one for one in fleet.phones if dropped.get(one) not in NOT_IN_THE_SUM]
            np.testing.assert_array_equal(sums[0], fleet.sum_of(alive))
            check_model(coordinator, fleet, alive, workshop)


@st.composite
def drop_outs(draw: st.DrawFn, phones: int) -> dict[str, str]:
    lost = draw(st.lists(st.integers(0, phones - 1), max_size=int(0.3 * phones), unique=True))
    return {f"phone{one}": draw(st.sampled_from(LOST)) for one in lost}


@pytest.mark.long
@settings(max_examples=6, deadline=None)
@given(st.data(), st.sampled_from((3, 10)), st.sampled_from((4, 8, 16)), st.sampled_from((1, 7)), st.integers(0, 99))
def test_the_sum_is_the_plain_one(data: st.DataObject, phones: int, bits: int, cap: int, seed: int) -> None:
    dropped = data.draw(drop_outs(phones))
    check_sum(phones, dropped, seed, {"bits": bits, "weight_cap": cap})


SPARSE = {"curious": 0.1, "dropouts": 0.2}  # for which a phone needs few holders


@pytest.mark.long
@settings(max_examples=1, deadline=None)
@given(st.data(), st.integers(0, 99))
def test_the_sum_of_the_largest_cohort_in_which_all_mask_with_all(data: st.DataObject, seed: int) -> None:
    check_sum(50, data.draw(drop_outs(50)), seed, {})


@pytest.mark.long
def test_the_sum_of_a_cohort_in_which_phones_mask_with_some() -> None:
    assert rule(60, **SPARSE)[0] < 200  # of 256
    check_sum(60, {f"phone{one}": LOST[one % len(LOST)] for one in range(6)}, 5, SPARSE)


def test_every_element_may_be_sent_and_a_server_optimizer_may_follow(workshop: Workshop, state: Path) -> None:
    server = masked_settings(3, masked={"support": 1}, server_optimizer="momentum")  # whose first step is the delta
    clock = Clock()
    with open_masked(workshop, state, server, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.run({}, random.Random(0), clock)
        check_model(coordinator, fleet, list(fleet.phones), workshop)
        again = Fleet(coordinator, workshop, 3)
        again.run({}, random.Random(0), clock)
        assert a_round(coordinator.ledger, 2).ending == "full"


@pytest.mark.parametrize(
    ("stage", "came"), [(stage, 2) for stage in STAGES] + [("keys", 0), ("list", 0), ("answer", 4)]
)
def test_a_server_that_was_killed_goes_on(workshop: Workshop, state: Path, stage: str, came: int) -> None:
    """came: how many of four phones have sent the stage's message."""
    clock, server = Clock(), masked_settings(4, masked={"weight_cap": 7})
    names = [f"phone{one}" for one in range(4)]
    with open_masked(workshop, state, server, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 4, tokens=3)
        fleet.to(stage)
        for name in names[:came]:
            fleet.deliver(name)
        was = coordinator.current
        sent = fleet.phones["phone0"].keys()
        ended = (stage, came) == ("answer", 4)
        before = None if stage == "keys" or ended else coordinator.masked_message("keys", "phone0", 1, sent)
    with open_masked(workshop, state, server, clock=clock) as coordinator:
        assert coordinator.current.masked == was.masked
        if ended:  # by the start
            assert coordinator.masked_message("answer", "phone0", 1, {}) == {}
        else:
            if before is not None:
                assert coordinator.masked_message("keys", "phone0", 1, sent) == before
            fleet.coordinator = coordinator
            fleet.run({}, random.Random(1), clock)
        check_model(coordinator, fleet, names, workshop)
        with coordinator.ledger.reading() as session:
            assert not cohorts.has_messages(session, 1)
            cohort = session.get_one(Cohort, 1)
            assert (cohort.stage, json.loads(cohort.counts)) == ("over", dict.fromkeys(get_args(StageName)[:-1], 4))


def test_a_server_that_was_down_for_longer_than_a_stage_fails_the_round(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.to("upload")
        fleet.deliver("phone0")
    clock.now += STAGE_SECONDS + 1
    with open_masked(workshop, state, clock=clock) as coordinator:
        coordinator.tick()
        assert a_round(coordinator.ledger).reason == "uploading: at least 3 phones expected, 1 got through"
        Fleet(coordinator, workshop, 3).run({}, random.Random(0), clock)
        assert a_round(coordinator.ledger, 2).ending == "full"


@pytest.fixture
def careless_sqlite() -> Iterator[None]:
    """A SQLite that is built to leave what is deleted in free pages, as some are."""

    def off(connection: Any, _entry: object) -> None:
        connection.execute("PRAGMA secure_delete=OFF").close()

    event.listen(Engine, "connect", off)
    yield
    event.remove(Engine, "connect", off)


@pytest.mark.usefixtures("careless_sqlite")
def test_nothing_of_the_messages_is_on_the_disk_after_the_round(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.to("answer")
        secrets = [json.dumps(body["self"]).encode() for _, body in fleet.requests.values()]
        sealed = [json.dumps(sealed).encode() for sealed in fleet.phones["phone0"].shares["shares"].values()]
        assert any(sealed[0] in path.read_bytes() for path in state.glob("ledger*"))
        fleet.run({}, random.Random(0), clock)
        for path in state.glob("ledger*"):
            assert not any(one in path.read_bytes() for one in (*secrets, *sealed)), path


def test_a_stage_that_the_disk_refuses_is_not_told(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, full = Clock(), raising(StorageError("ledger: database or disk is full"))
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        for name in ("phone0", "phone1"):
            assert not fleet.deliver(name)
        with monkeypatch.context() as patch:
            patch.setattr(cohorts, "begin_stage", full)
            with pytest.raises(StorageError):
                fleet.deliver("phone2")
            with pytest.raises(StorageError):
                fleet.deliver("phone1")
            patch.setattr(cohorts, "add_message", full)
        fleet.run({}, random.Random(0), clock)
        check_model(coordinator, fleet, list(fleet.phones), workshop)


def test_a_model_that_the_disk_refuses_is_made_again_from_the_stored_updates(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, write = Clock(), next_model.write_model

    def write_and_fail(*given: Any) -> Any:
        write(*given)
        raise StorageError("model: cannot write: No space left on device")

    with open_masked(workshop, state, masked_settings(4, 3), clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 4)
        fleet.to("answer")
        for name in ("phone0", "phone1", "phone2"):
            fleet.deliver(name)
        clock.now += STAGE_SECONDS + 1
        with monkeypatch.context() as patch:
            patch.setattr(next_model, "write_model", write_and_fail)
            coordinator.tick()
            assert (coordinator.overdue, coordinator.current.round) == (True, 1)
            with pytest.raises(NotOfCohortError, match="phone3: not awaited in round 1, which is over"):
                fleet.deliver("phone3")  # an answer changes no sum any more
        coordinator.tick()
        check_model(coordinator, fleet, list(fleet.phones), workshop)


def test_a_deadline_takes_those_that_are_there(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, masked_settings(10, 3, deadline_seconds=1000.0), clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 4)
        for name in ("phone0", "phone1"):
            fleet.deliver(name)
        clock.now += 1001
        coordinator.tick()
        assert not fleet.deliver("phone0")  # two are too few, however late
        assert fleet.deliver("phone2")
        assert coordinator.participation("phone2") is None
        assert "not awaited in round 1, which is drawing" in str(coordinator.participation("phone3"))
        fleet.run({"phone3": "keys"}, random.Random(0), clock)
        check_model(coordinator, fleet, ["phone0", "phone1", "phone2"], workshop)


PRIVATE = {"strategy": "dp-fedavg", "sampling": 1.0, "population": 4, "deadline_seconds": 100.0, "clip_norm": 2.0}


def test_a_private_round_adds_noise_to_the_sum_when_its_time_has_come(workshop: Workshop, state: Path) -> None:
    models = {}
    for multiplier in (0.0, 1.0):
        clock, place = Clock(), state / str(multiplier)
        server = masked_settings(4, 3, {"clip": 2.0}, noise_multiplier=multiplier, **PRIVATE)
        with open_masked(workshop, place, server, clock=clock) as coordinator:
            for one in range(4):
                PhoneRegistry(coordinator.ledger).add(f"phone{one}", "phone", "1d", "test")
            coordinator.tick()
            fleet = Fleet(coordinator, workshop, 4)
            assert not any(fleet.deliver(name) for name in fleet.phones)  # full, and it still waits for the deadline
            clock.now += 101
            fleet.run({}, random.Random(0), clock)
            ended = a_round(coordinator.ledger)
            assert ended.ending == "deadline"
            models[multiplier] = load_tensors(coordinator.folder.model(str(ended.result_sha256)))
            assert server.masked is not None
            std = multiplier * server.masked.about().sensitivity / 4
    plain = fleet.model_of(list(fleet.phones), workshop.base_path)
    for name, expected in plain.items():
        np.testing.assert_allclose(models[0.0][name], expected, rtol=0, atol=1e-6)
    noise = np.concatenate([(models[1.0][name] - plain[name]).reshape(-1) for name in plain])
    assert 0.85 * std < noise.std() < 1.15 * std
