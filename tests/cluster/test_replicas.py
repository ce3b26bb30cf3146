"""Several servers for one service, here in one process: a ledger in PostgreSQL, a store, a state folder each."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.refusals import DuplicatePhoneError, RoundClosingError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import ABANDONED_SECONDS, UploadMetadata
from phonograd.server_agg.storage.tables import Update
from tests.cluster.conftest import Open
from tests.cluster.servers import (
    accepted_phones,
    before_acceptance,
    deadline,
    endings,
    follow,
    one_process,
    rounds,
    upload,
)
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.dashboard_pages import PAGES
from tests.server_agg.faults import raising
from tests.server_agg.tus_phone import TusPhone, announced
from tests.server_agg.workshop import Workshop, client_of, run_server, settings_with
from tests.support.waiting import until

pytestmark = pytest.mark.cluster


def once_open(send_once: Callable[[], Receipt]) -> Receipt:
    """A phone that comes again while the round is closing."""
    found: list[Receipt] = []

    def is_taken() -> bool:
        with contextlib.suppress(RoundClosingError):
            found.append(send_once())
        return bool(found)

    until(is_taken, "an open round")
    return found[0]


@pytest.mark.parametrize("every", [1, 2])
def test_the_same_models_as_one_process(every: int, workshop: Workshop, tmp_path: Path, replicas: Open) -> None:
    """Median and norm bound are in test_partial_sums. every: rounds after which phones get a model."""
    changes: dict[str, object] = {"server_optimizer": "momentum", "publish": "top-rows", "publish_bits": 1}
    changes["deploy_every"] = every
    updates = one_process(workshop, tmp_path / "one", settings_with(clients_per_round=3, **changes), 2 * every)
    three = replicas(3, **changes)
    for number, sent in enumerate(updates, 1):
        for seed, update in enumerate(sent):
            send(three[(seed + number) % 3], update, f"phone{seed}")
        follow(three, number + 1)
    with open_coordinator(workshop, tmp_path / "one", settings_with(clients_per_round=3, **changes)) as alone:
        assert {coordinator.current.base_sha256 for coordinator in three} == {alone.current.base_sha256}
        kept = {path.name: sha256_of_file(path) for path in alone.folder.models.iterdir()}
    for coordinator in three:
        model = coordinator.folder.model(coordinator.current.base_sha256)
        assert sha256_of_file(coordinator.folder.fetch(model)) == kept[model.name]


def test_each_round_closes_once_whoever_comes(workshop: Workshop, replicas: Open) -> None:
    """Twelve phones at once, at four servers: each round has three of them, late ones in the rounds that follow."""
    four = replicas(4, late="next")
    sent: list[Receipt] = []

    def phone(number: int) -> None:
        update = workshop.update(number)
        sent.append(once_open(lambda: send(four[number % 4], update, f"phone{number}")))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(phone, range(12)))
    until(lambda: [one.tick() for one in four] and rounds(four[0].ledger)[-1].number == 5, "the last round")
    assert endings(four[0]) == ["full"] * 4 + [None]
    with four[0].ledger.reading() as session:
        taken = sorted(session.scalars(select(Update.round).where(Update.state == "accepted")))
    assert taken == [number for number in (1, 2, 3, 4) for _ in range(3)]
    assert len(sent) == 12


def test_a_round_that_closes_takes_no_more_updates(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that was admitted before: what was folded is what was accepted."""
    first, second = replicas(2, clients_per_round=1)
    ingest = upload(second, workshop.update(2), "b")
    close_round, refused = LiveRound.close_round, []

    def meanwhile(*arguments: object) -> None:
        follow([second], 1)  # it does not close the round too
        assert second.current.closing is not None
        for _ in range(2):
            with pytest.raises(RoundClosingError) as error:
                ingest()
            refused.append(error.value)
        assert second.participation("b") is not None
        close_round(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveRound, "close_round", meanwhile)
    assert send(first, workshop.update(1), "a").round_closed
    assert len(refused) == 2
    monkeypatch.setattr(LiveRound, "close_round", close_round)
    second.round.refresh()
    assert (second.current.round, second.current.accepted) == (2, 0)


def test_an_update_that_was_checked_while_another_server_took_the_last(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, clients_per_round=2)
    send(first, workshop.update(1), "a")
    ingest = upload(second, workshop.update(2), "b")
    before_acceptance(second, lambda: send(first, workshop.update(3), "c"))
    with pytest.raises(RoundClosingError):
        ingest()
    follow([second], 2)
    assert (endings(first), accepted_phones(first)) == (["full", None], {"a", "c"})


def test_a_phone_counts_once_at_all_servers(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2)
    receipt = send(first, workshop.update(1), "a")
    assert send(second, workshop.update(1), "a") == receipt
    with pytest.raises(DuplicatePhoneError):
        send(second, workshop.update(2), "a")
    second.tick()
    assert second.current.accepted == 1


@pytest.mark.parametrize("dies", ["before it folds", "after it stored the model"])
def test_a_server_that_dies_while_it_closes_a_round(
    dies: str, workshop: Workshop, tmp_path: Path, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (updates,) = one_process(workshop, tmp_path / "one", settings_with(clients_per_round=3), 1)
    first, second = replicas(2)
    with monkeypatch.context() as patch:
        at = "close_round" if dies == "before it folds" else "record_model"
        patch.setattr(LiveRound, at, raising(KeyboardInterrupt()))  # as a kill: nothing of the server's runs after it
        for seed, update in enumerate(updates[:2]):
            send(second, update, f"phone{seed}")
        with pytest.raises(KeyboardInterrupt):
            send(first, updates[2], "phone2")
    second.round.refresh()
    assert second.current.closing is not None
    follow([second], 2)
    with open_coordinator(workshop, tmp_path / "one") as alone:
        assert second.current.base_sha256 == alone.current.base_sha256
    follow([first], 2)


def test_a_server_that_has_not_heard_of_the_new_round_takes_part_in_it(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, clients_per_round=1)
    send(first, workshop.update(1), "a")
    base = first.folder.model(first.current.base_sha256)
    assert second.current.round == 1
    announced = UploadMetadata("b", 1000, base_sha256=first.current.base_sha256, round=2)
    assert second.create_upload(announced).round == 2
    assert second.participation("a") is None
    assert send(second, workshop.update(2, 2, base=base), "a").round == 2


def test_no_server_rolls_back_while_another_closes_the_round(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing deletes old models, perhaps the one to return to."""
    first, second = replicas(2, clients_per_round=1)
    record_model = LiveRound.record_model

    def meanwhile(*arguments: object) -> None:
        with pytest.raises(RoundClosingError, match="round 1: another server is closing it; roll back again when"):
            second.rollback(0)
        record_model(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveRound, "record_model", meanwhile)
    assert send(first, workshop.update(1), "a").round_closed
    assert second.rollback(0).round == 3
    follow([first], 3)


def test_an_upload_goes_on_at_another_server(workshop: Workshop, tmp_path: Path, place: dict[str, object]) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(run_server(workshop, tmp_path / f"s{index}", **place)) for index in range(2)]
        clients = [stack.enter_context(client_of(server.url)) for server in servers]
        phone = announced(clients[0], "phone1", workshop.update(1))
        for at, start in enumerate(range(0, len(phone.data), 1000)):
            phone.http = clients[at % 2]
            assert phone.offset() == start
            assert phone.patch(start, phone.data[start : start + 1000]).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"
        other = TusPhone(clients[0], "phone2", workshop.update(2).read_bytes())
        assert other.finish()["round_closed"]
        assert clients[1].get("/v1/round").json()["round"] == 2
        for page in (*PAGES, "/metrics", "/v1/report", "/v1/models"):
            answer = clients[1].get(page)
            assert answer.status_code == 200, (page, answer.text)
        model = clients[1].get("/v1/model")
        assert model.headers["ETag"] == f'"{servers[0].coordinator.current.base_sha256}"'


def test_what_a_killed_server_left_is_ingested_by_another(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2)
    update = workshop.update(1)
    ids = {}
    for phone, part in (("a", 1.0), ("b", 0.5)):
        upload = first.create_upload(UploadMetadata(phone, update.stat().st_size))
        data = update.read_bytes()[: int(part * update.stat().st_size)]
        first.uploads.bytes.append(upload.id, 0).write(memoryview(data))
        ids[phone] = upload.id
    second.tick()
    assert {upload.phone for upload in second.uploads.unfinished_uploads()} == {"a", "b"}
    deadline(second, seconds=ABANDONED_SECONDS + 1)
    second.tick()
    states = {phone: second.uploads.find(identifier).state for phone, identifier in ids.items()}  # type: ignore[union-attr]
    assert states == {"a": "accepted", "b": "receiving"}


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_server_whose_clock_is_wrong_ends_nothing_and_nothing_of_it_is_ended(
    hours: int, workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    (right,) = replicas(1, deadline_seconds=3600.0, announce_seconds=300.0)
    now = time.time() + 3600 * hours
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now)
        (wrong,) = replicas(1, deadline_seconds=3600.0, announce_seconds=300.0)
    send(right, workshop.update(1), "a")
    for coordinator, phone in ((right, "b"), (wrong, "c")):
        coordinator.create_upload(UploadMetadata(phone, workshop.update(2).stat().st_size))
    follow([wrong, right, wrong], 1)
    assert {upload.phone for upload in right.uploads.unfinished_uploads()} == {"b", "c"}
    assert right.current.accepted == wrong.current.accepted == 1


def test_a_server_that_starts_leaves_the_uploads_of_others_alone(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open
) -> None:
    (first,) = replicas(1)
    data = workshop.update(1).read_bytes()
    uploads = [first.create_upload(UploadMetadata(phone, len(data))) for phone in "ab"]
    sinks = [first.uploads.bytes.append(upload.id, 0) for upload in uploads]
    for sink in sinks:
        sink.write(memoryview(data[:500]))
    with open_coordinator(workshop, tmp_path / "second", settings_with(**place, clients_per_round=3)):
        for upload, sink in zip(uploads, sinks, strict=True):
            sink.write(memoryview(data[500:]))
            sha256 = first.uploads.bytes.sha256(upload.id)
            assert first.ingest(upload.id, sha256, 0).bytes == len(data)


def test_deadlines(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, deadline_seconds=1000.0)
    send(first, workshop.update(1), "a")
    deadline(first, second, seconds=1001)
    barrier = threading.Barrier(2)

    def tick(coordinator: Coordinator) -> None:
        barrier.wait()
        coordinator.tick()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(tick, (first, second)))
    follow([first, second], 2)
    assert endings(first) == ["deadline", None]
