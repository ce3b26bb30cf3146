"""Several workers over one state folder, here in one process: the tests of several servers that hold for them too."""

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.base.documents import written
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.refusals import RequestError, RoundClosingError
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.rounds import coordinator, opening, sweeping
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.folder_claim import claim, lock
from phonograd.server_agg.storage.noise_keys import NoiseKeys
from phonograd.server_agg.storage.tables import Process
from phonograd.server_agg.storage.upload_bytes import FileSink
from phonograd.server_agg.storage.worker import Worker, locked
from tests.cluster.conftest import Open
from tests.cluster.test_partial_sums import (
    folded_again,
    send_without_closing,
    small_chunks,
    test_a_beat_tells_once_of_a_round_that_closes_and_of_the_next,
    test_a_dead_server_is_not_waited_for,
    test_a_server_whose_closing_failed_gives_its_own_sum_to_the_next,
    test_a_strategy_of_ones_own_adds_what_other_servers_accepted,
    test_an_update_that_came_too_late_is_taken_out_again,
    test_the_closer_waits_for_the_sums_of_servers_that_live,
)
from tests.cluster.test_private_replicas import test_the_same_models_as_one_server_with_the_same_keys
from tests.cluster.test_replicas import (
    test_a_phone_counts_once_at_all_servers,
    test_a_round_that_closes_takes_no_more_updates,
    test_a_server_that_dies_while_it_closes_a_round,
    test_a_server_that_has_not_heard_of_the_new_round_takes_part_in_it,
    test_each_round_closes_once_whoever_comes,
    test_no_server_rolls_back_while_another_closes_the_round,
    test_the_same_models_as_one_process,
)
from tests.server_agg.faults import adds_up
from tests.server_agg.test_rounds import send
from tests.server_agg.tus_phone import announced
from tests.server_agg.workshop import Workshop, client_of, settings_with

__all__ = [
    "folded_again",
    "small_chunks",
    "test_a_beat_tells_once_of_a_round_that_closes_and_of_the_next",
    "test_a_dead_server_is_not_waited_for",
    "test_a_phone_counts_once_at_all_servers",
    "test_a_round_that_closes_takes_no_more_updates",
    "test_a_server_that_dies_while_it_closes_a_round",
    "test_a_server_that_has_not_heard_of_the_new_round_takes_part_in_it",
    "test_a_server_whose_closing_failed_gives_its_own_sum_to_the_next",
    "test_a_strategy_of_ones_own_adds_what_other_servers_accepted",
    "test_an_update_that_came_too_late_is_taken_out_again",
    "test_each_round_closes_once_whoever_comes",
    "test_no_server_rolls_back_while_another_closes_the_round",
    "test_the_closer_waits_for_the_sums_of_servers_that_live",
    "test_the_same_models_as_one_process",
    "test_the_same_models_as_one_server_with_the_same_keys",
]


@pytest.fixture
def replicas(workshop: Workshop, tmp_path: Path) -> Iterator[Open]:
    """Workers of one folder; those of the first call begin with the one that is alone."""
    root, numbers = tmp_path / "shared", itertools.count()
    claim(root)
    with contextlib.ExitStack() as stack:
        descriptor = lock(root)
        stack.callback(os.close, descriptor)

        def one(**changes: object) -> Coordinator:
            number = next(numbers)
            worker = Worker(number, number == 0, os.dup(descriptor))
            settings = settings_with(**{"clients_per_round": 3, "workers": 2} | changes)
            made = Coordinator(workshop.artifacts, root, settings, worker=worker)
            stack.callback(made.close)
            return made

        yield lambda count, **changes: [one(**changes) for _ in range(count)]


def test_two_workers_never_write_one_upload(tmp_path: Path) -> None:
    """Whoever adds to it first goes on; what the other one still gets is not written."""
    first = FileSink(tmp_path / "upload", 0, workers=True)
    first.write(memoryview(b"ab"))
    second = FileSink(tmp_path / "upload", 2, workers=True)
    second.write(memoryview(b"cd"))
    with pytest.raises(RequestError) as error:
        first.write(memoryview(b"xx"))
    assert error.value.status == 409
    second.write(memoryview(b"ef"))
    first.close()
    second.close()
    assert (tmp_path / "upload").read_bytes() == b"abcdef"


def test_what_a_worker_knows_of_an_upload_s_bytes_ends_with_its_request(replicas: Open) -> None:
    """Another one may have added some: only an upload that begins is hashed on the way."""
    (first,) = replicas(1)
    upload = first.create_upload(UploadMetadata("a", 4))
    assert first.uploads.bytes.hashed(upload.id) is not None
    first.folder.upload(upload.id).write_bytes(b"ab")
    assert first.uploads.bytes.hashed(upload.id) is None


def test_bytes_that_a_killed_worker_had_not_counted_are_counted_once(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2)
    update = workshop.update(1)
    upload = first.create_upload(UploadMetadata("a", update.stat().st_size))
    first.folder.upload(upload.id).write_bytes(update.read_bytes())  # and there it died
    second.ingest(upload.id, sha256_of_file(update), 0)
    second.ledger.flush()
    entry = written(report_of(second.ledger))["rounds"][0]
    assert adds_up(entry)
    assert entry["up_body_bytes"] == entry["useful_bytes"] == update.stat().st_size


def free(folder: Path, together: bool = False) -> bool:
    with locked(folder / "locks" / "files", wait=False, together=together) as mine:
        return mine


def test_no_update_is_swept_before_the_ledger_names_it(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2)
    link, needed, found = second.folder.link_into_place, queries.needed_update_hashes, []

    def linked(*arguments: object) -> None:
        link(*arguments)  # type: ignore[arg-type]
        found.append(free(first.folder.root))

    second.folder.link_into_place = linked  # type: ignore[method-assign]
    send(second, workshop.update(1), "a")

    def read(session: object) -> set[str]:
        found.append(free(first.folder.root, together=True))
        return needed(session)  # type: ignore[arg-type]

    monkeypatch.setattr(queries, "needed_update_hashes", read)
    sweeping.sweep_folder(first.folder, first.ledger, first.settings)
    assert (found, free(first.folder.root)) == ([False, False], True)
    assert len(list(first.folder.updates.iterdir())) == 1


def test_a_worker_that_comes_later_deletes_nothing_that_others_use(workshop: Workshop, replicas: Open) -> None:
    """But the drafts of the one whose place it takes."""
    first, second = replicas(2)
    send(first, workshop.update(1), "a")
    upload = first.create_upload(UploadMetadata("b", 100))
    (update,) = first.folder.updates.iterdir()
    theirs = [first.folder.new_draft(), second.folder.new_draft(), first.folder.upload(upload.id), update]
    orphan, old = first.folder.update("ab" * 32), first.folder.root / "drafts" / f"02{'ab' * 15}"
    for path in (*theirs[:3], orphan, old):
        path.touch()
    theirs[2].write_bytes(b"half")  # by a request that goes on, and counts it at its end
    (third,) = replicas(1)
    with first.ledger.reading() as session:
        assert queries.update_row(session, upload.id).received_bytes == 0
    assert [path.exists() for path in (*theirs, orphan, old)] == [True] * 5 + [False]
    for seed, one in ((2, second), (3, third)):
        send(one, workshop.update(seed), f"phone{seed}")
    assert not orphan.exists()  # the round has ended
    assert theirs[2].exists()


def test_a_worker_that_is_behind_keeps_the_next_round_s_noise_key(tmp_path: Path) -> None:
    keys = NoiseKeys(tmp_path / "noise", tmp_path / "lock")
    (tmp_path / "noise").mkdir()
    made = [keys.get_or_create(number) for number in (1, 2, 3)]
    keys.delete_all_except(2)
    assert sorted(path.name for path in (tmp_path / "noise").iterdir()) == ["2", "3"]
    assert keys.get_or_create(3) == made[2]


@contextlib.contextmanager
def answering(worker: Coordinator) -> Iterator[httpx.Client]:
    server = AggregationServer(worker, settings_with(port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with client_of(server.url, {}) as http:
            yield http
    finally:
        server.stop()
        thread.join()


def test_an_upload_goes_on_at_another_worker(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2)
    with answering(first) as here, answering(second) as there:
        phone = announced(here, "phone1", workshop.update(1))
        for at, start in enumerate(range(0, len(phone.data), 1000)):
            phone.http = (here, there)[at % 2]
            assert phone.offset() == start
            assert phone.patch(start, phone.data[start : start + 1000]).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"


def test_a_worker_that_gave_its_sum_away_keeps_none_and_ended_rounds_leave_none(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2, clients_per_round=2)
    send(second, workshop.update(1), "a")
    send_without_closing(first, workshop.update(2), "b")
    mine = second._round.aggregator
    assert mine._aggregation is not None
    with first.ledger.closing_lock():
        second.tick()
    assert (mine._aggregation, mine.shared) == (None, True)
    parts, clock = first.folder.root / "parts", first.ledger.clock
    assert [path.name for path in parts.iterdir()] == [f"1-{second.ledger.process}"]
    (parts / f"2-{'ab' * 16}").mkdir()  # of a worker that is quicker
    monkeypatch.setattr(first.ledger, "clock", lambda: clock() + sweeping.FORGET_SECONDS + 60)
    first.tick()
    assert first.current.round == 2
    assert [path.name for path in parts.iterdir()] == [f"2-{'ab' * 16}"]
    with first.ledger.reading() as session:
        assert session.query(Process).all() == []


def test_the_disk_has_room_for_the_sums_too(workshop: Workshop, replicas: Open) -> None:
    """Of all workers but one, which merges them, and one as a draft: in int64, twice the model each."""
    (first,) = replicas(1)
    asked: list[int] = []
    first.folder.check_space = asked.append  # type: ignore[method-assign]
    first.create_upload(UploadMetadata("a", 1000))
    assert asked == [1000 + (2 + 2 * 2) * first.current.model_bytes]


def test_an_update_that_comes_after_the_sum_was_given_away_is_sent_again(
    workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has ended the round by then, whose updates nobody can read any more."""
    first, second = replicas(2, clients_per_round=2, late="next")
    send(second, workshop.update(1), "a")
    send_without_closing(first, workshop.update(2), "b")
    with first.ledger.closing_lock():
        second.tick()
    first.tick()
    with monkeypatch.context() as patch, pytest.raises(RoundClosingError):
        patch.setattr(coordinator, "end_if_complete", lambda *_: None)  # as if the round had ended after that
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
        second.refresh()
        return expect(*arguments)

    monkeypatch.setattr(opening, "expect_open_round", read)
    with second.ledger.reading() as session:
        assert second._round.admission_state(session).number == 2
