"""Each server sums what it accepted, and the one that closes merges: the model of one server, whatever was lost."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.own import own_strategy
from phonograd.server_agg.aggregation.strategies.averaging import Averaging
from phonograd.server_agg.aggregation.strategy import Measures
from phonograd.server_agg.refusals import RoundClosingError
from phonograd.server_agg.rounds import opening, partial_sums, sweeping
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.server import _beat, _tick
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.stores import ObjectStore
from phonograd.server_agg.storage.tables import Process, Update
from tests.cluster.conftest import Open
from tests.cluster.servers import before_acceptance, deadline, one_process, rounds, send_without_closing, upload
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def folded_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes of stored updates that were folded again."""
    found: list[str] = []
    add_again = RoundAggregator.add_again

    def record(self: RoundAggregator, aggregation: object, row: Update) -> None:
        found.append(str(row.sha256))
        add_again(self, aggregation, row)  # type: ignore[arg-type]

    monkeypatch.setattr(RoundAggregator, "add_again", record)
    return found


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_sums, "CHUNK_BYTES", 1000)


@contextlib.contextmanager
def serving(*coordinators: Coordinator) -> Iterator[None]:
    """Servers' threads."""
    stopped, threads = threading.Event(), []
    for one in coordinators:
        one.beat()
        due = threading.Event()
        threads += [threading.Thread(target=work, args=(one, stopped, due)) for work in (_tick, _beat)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def model_of_one(workshop: Workshop, tmp_path: Path, **changes: object) -> tuple[list[Path], str]:
    """Updates of a round, and the model that one server makes of them."""
    settings = settings_with(clients_per_round=3, **changes)
    (updates,) = one_process(workshop, tmp_path / "one", settings, 1)
    with open_coordinator(workshop, tmp_path / "one", settings) as alone:
        return updates, alone.current.base_sha256


def model_of_three(replicas: Open, updates: list[Path], **changes: object) -> tuple[Coordinator, str]:
    """One of three servers of which each got an update, and the model that all have then."""
    three = replicas(3, **changes)
    with serving(*three):
        for seed, (one, sent) in enumerate(zip(three, updates, strict=True)):
            send(one, sent, f"phone{seed}")
        until(lambda: all(one.current.round == 2 for one in three), "the next round")
    (model,) = {one.current.base_sha256 for one in three}
    return three[0], model


@pytest.mark.parametrize(
    "changes", [{"strategy": "norm-bound", "norm_bound": 0.5}, {"strategy": "median"}], ids=["folded", "all"]
)
def test_the_closer_waits_for_the_sums_of_servers_that_live(
    changes: dict[str, object], workshop: Workshop, tmp_path: Path, replicas: Open, folded_again: list[str]
) -> None:
    updates, expected = model_of_one(workshop, tmp_path, **changes)
    assert model_of_three(replicas, updates, **changes)[1] == expected
    assert folded_again == []


class Counted(Averaging):
    """FedAvg by sums of its own beside the fold: nobody but itself could merge them."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.seen = 0

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        super().add(update, weight, measures)
        self.seen += 1

    def metadata(self) -> dict[str, str]:
        return {"seen": str(self.seen)}


def test_a_strategy_of_ones_own_adds_what_other_servers_accepted(
    workshop: Workshop, tmp_path: Path, replicas: Open
) -> None:
    name = own_strategy(Counted).strategy
    updates, expected = model_of_one(workshop, tmp_path, strategy=name)
    first, found = model_of_three(replicas, updates, strategy=name)
    assert found == expected
    with TensorFile(first.folder.fetch(first.folder.model(expected))) as model:
        assert model.metadata["seen"] == "3"


def drop(store: ObjectStore, chunks: list[str]) -> None:
    store.delete(chunks[1:2])


def damage(store: ObjectStore, chunks: list[str]) -> None:
    data = bytearray(store.read(chunks[-1]))
    data[-1] ^= 1
    store.write(bytes(data), chunks[-1])


@pytest.mark.parametrize(
    ("harm", "why"),
    [(ObjectStore.delete, "is missing in the store"), (drop, "is damaged in the store"), (damage, "is damaged in the")],
)
def test_a_sum_that_is_lost_costs_its_updates_folding(
    harm: Callable[[ObjectStore, list[str]], None],
    why: str,
    workshop: Workshop,
    tmp_path: Path,
    place: dict[str, object],
    replicas: Open,
    folded_again: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    updates, expected = model_of_one(workshop, tmp_path)
    (first,) = replicas(1)
    with open_coordinator(workshop, tmp_path / "second", settings_with(**place, clients_per_round=3)) as second:
        for seed in (0, 1):
            send(second, updates[seed], f"phone{seed}")
    store = first.folder.store
    assert isinstance(store, ObjectStore)
    names = store.names("parts")  # ROUND-PROCESS/CHUNK
    assert len(names) > 2
    harm(store, [f"parts/{name}" for name in sorted(names)])
    assert send(first, updates[2], "phone2").round_closed
    assert first.current.base_sha256 == expected
    assert sorted(folded_again) == sorted(map(sha256_of_file, updates[:2]))
    assert f"the sum of 2 updates is lost, they are folded again: parts/{names[0][:-2]} {why}" in caplog.text


def test_a_server_that_stops_leaves_its_sum(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open, folded_again: list[str]
) -> None:
    updates, expected = model_of_one(workshop, tmp_path)
    (first,) = replicas(1)
    for seed in (0, 1):
        with open_coordinator(workshop, tmp_path / "second", settings_with(**place, clients_per_round=3)) as second:
            send(second, updates[seed], f"phone{seed}")
    assert send(first, updates[2], "phone2").round_closed
    assert (first.current.base_sha256, folded_again) == (expected, [])


def test_a_dead_server_is_not_waited_for(
    workshop: Workshop,
    tmp_path: Path,
    replicas: Open,
    folded_again: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was seen long ago, and one that was never seen."""
    monkeypatch.setattr(partial_sums, "POLL_SECONDS", None)  # which no one can sleep
    updates, expected = model_of_one(workshop, tmp_path)
    first, second, third = replicas(3)
    deadline(second, seconds=-partial_sums.ALIVE_SECONDS - 1)
    second.beat()
    send(second, updates[0], "phone0")
    send(third, updates[1], "phone1")
    assert send(first, updates[2], "phone2").round_closed
    assert first.current.base_sha256 == expected
    assert sorted(folded_again) == sorted(map(sha256_of_file, updates[:2]))
    assert caplog.text.count("the sum of 1 updates is lost, they are folded again: its server is gone") == 2


def owned_by(ledger: Ledger, phone: str, process: str | None) -> None:
    with ledger.writing() as session:
        session.execute(update(Update).where(Update.phone == phone).values(process=process))


@pytest.mark.parametrize("whose", ["another's", "the closer's"])
def test_a_sum_of_other_updates_than_the_ledger_has_is_not_used(
    whose: str, workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open
) -> None:
    updates, expected = model_of_one(workshop, tmp_path)
    (first,) = replicas(1)
    with open_coordinator(workshop, tmp_path / "second", settings_with(**place, clients_per_round=3)) as second:
        send(second, updates[0], "phone0")
        send(second if whose == "another's" else first, updates[1], "phone1")
    owned_by(first.ledger, "phone0", None if whose == "another's" else first.ledger.process)
    assert send(first, updates[2], "phone2").round_closed
    assert first.current.base_sha256 == expected


def test_an_update_that_came_too_late_is_taken_out_again(
    workshop: Workshop, tmp_path: Path, replicas: Open, folded_again: list[str]
) -> None:
    updates, expected = model_of_one(workshop, tmp_path)
    first, second = replicas(2)
    for seed in (0, 1):
        send(second, updates[seed], f"phone{seed}")
    ingest = upload(second, workshop.update(9), "b")
    before_acceptance(second, lambda: send_without_closing(first, updates[2], "phone2"))
    with pytest.raises(RoundClosingError):
        ingest()
    with serving(first, second):
        until(lambda: first.current.round == second.current.round == 2, "the next round")
    assert (second.current.base_sha256, folded_again) == (expected, [])


def test_a_server_whose_closing_failed_gives_its_own_sum_to_the_next(
    workshop: Workshop,
    tmp_path: Path,
    replicas: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not what it had merged."""
    updates, expected = model_of_one(workshop, tmp_path)
    first, second = replicas(2)
    new_model, failed = LiveRound._make_model, list[Coordinator]()

    def failing(current: LiveRound) -> object:
        if current is first.round:
            failed.append(first)
            raise StorageError("the disk is full")
        return new_model(current)

    monkeypatch.setattr(LiveRound, "_make_model", failing)
    with serving(first, second):
        for seed, one in enumerate((second, second, first)):
            send(one, updates[seed], f"phone{seed}")
        until(lambda: first.current.round == second.current.round == 2, "the next round")
    assert failed
    assert second.current.base_sha256 == expected
    assert "is lost" not in caplog.text


def test_sums_that_would_overflow_together_fail_the_round(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open
) -> None:
    changes: dict[str, object] = {"clients_per_round": 2, "weighting": "equal"}
    (first,) = replicas(1, **changes)
    with TensorFile(workshop.base_path) as base:
        far = {name: base.read(name) + 2.0**29 for name in base.specs}
    sent = [workshop.update(seed, trained=far) for seed in (1, 2)]
    with open_coordinator(workshop, tmp_path / "second", settings_with(**place, **changes)) as second:
        send(second, sent[0], "phone1")
    send(first, sent[1], "phone2")
    failed, following = rounds(first.ledger)
    assert (failed.ending, following.base_sha256) == ("failed", workshop.base_sha256)
    assert str(failed.reason).startswith("fold: weights x steps would reach 46116")


def test_sums_of_ended_rounds_are_deleted(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that ended a day ago are forgotten, too."""
    (first,) = replicas(1, clients_per_round=1)
    with open_coordinator(workshop, tmp_path / "second", settings_with(**place, clients_per_round=1)) as second:
        send_without_closing(second, workshop.update(1))
    store = first.folder.store
    assert isinstance(store, ObjectStore)
    store.write(b"of a round that another server is quicker with", "parts/2-ab/0")
    assert len(store.names("parts")) > 2
    first.tick()
    assert first.current.round == 2
    assert store.names("parts") == ["2-ab/0"]
    deadline(first, seconds=sweeping.FORGET_SECONDS + 60)
    first.beat()
    sweeping.sweep_store(first.folder, first.ledger, first.settings)
    with first.ledger.reading() as session:
        assert [process.id for process in session.query(Process)] == [first.ledger.process]


def test_a_beat_tells_once_of_a_round_that_closes_and_of_the_next(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, clients_per_round=1)
    assert [second.beat(), second.beat()] == [True, False]
    send_without_closing(first, workshop.update(1))
    assert [second.beat(), second.beat()] == [True, False]
    first.tick()
    assert [second.beat(), second.beat()] == [True, False]


def test_a_server_that_gave_its_sum_away_keeps_none_and_takes_no_more(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once another server has ended the round, nobody can read its updates any more."""
    first, second = replicas(2, clients_per_round=2, late="next")
    send(second, workshop.update(1), "a")
    send_without_closing(first, workshop.update(2), "b")
    mine = second.round.aggregator
    assert mine._aggregation
    with first.ledger.closing_lock():
        second.tick()
    assert not mine._aggregation
    first.tick()
    sweeping.sweep_folder(second.folder, second.ledger, second.settings)
    with monkeypatch.context() as patch, pytest.raises(RoundClosingError):
        patch.setattr(LiveRound, "end_if_complete", lambda *_: None)  # as if the round had ended after that
        send(second, workshop.update(3), "c")
    assert send(second, workshop.update(3), "c").round == 2


def test_admission_is_of_the_ledger_s_round_whatever_another_thread_shows_meanwhile(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2, clients_per_round=1)
    send(first, workshop.update(1), "a")
    expect = opening.expect_open_round

    def read(*arguments: Any) -> Any:
        monkeypatch.setattr(opening, "expect_open_round", expect)
        second.round.refresh()
        return expect(*arguments)

    monkeypatch.setattr(opening, "expect_open_round", read)
    with second.ledger.reading() as session:
        assert second.round.admission(session).row.number == 2
