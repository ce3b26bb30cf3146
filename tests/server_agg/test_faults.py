"""Networks, phones and uploads that fail: every one of them ends in the right status, with the ledger right."""

import contextlib
import errno
import hashlib
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, StorageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.server_client import Connection, upload_update
from phonograd.server_agg.http import upload_sessions
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.http.upload_sessions import UploadSessions
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.upload_bytes import FileBytes
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.faults import QUICK, adds_up, answer_on, arriving, half_sent, raising, states
from tests.server_agg.http_uploads import check_problem, final_report
from tests.server_agg.relay import relay_to
from tests.server_agg.tus_phone import TusPhone, announced, checksum, incoming, phone_with
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, settings_with
from tests.support.waiting import PATIENCE_SECONDS, until


def test_connections_that_drop_anywhere(start_server: StartServer, workshop: Workshop) -> None:
    chance = random.Random(1)
    updates = [workshop.update(phone) for phone in range(2)]
    with start_server() as server:
        with relay_to(server.port, [chance.randrange(6000) for _ in range(40)]) as (_, url):

            def arrives(phone: int) -> bool:
                with contextlib.suppress(ServerUnreachableError):
                    return bool(upload_update(url, updates[phone], f"phone{phone}", retry=QUICK).accepted)
                return False

            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda phone: until(lambda: arrives(phone)), range(2)))
        assert server.coordinator.current.round == 2
        model = server.coordinator.current.base_sha256
        closed, open_ = final_report(server)["rounds"]
        assert (closed["accepted"], closed["useful_bytes"]) == (2, sum(path.stat().st_size for path in updates))
        assert adds_up(closed)
        assert adds_up(open_)
        assert incoming(server) == []
    with open_coordinator(workshop, server.state.parent / "calm", settings_with(clients_per_round=2)) as coordinator:
        receipts = [send(coordinator, update, f"phone{phone}") for phone, update in enumerate(updates)]
    assert receipts[-1].model_sha256 == model


def test_a_new_connection_takes_over_from_a_dead_one(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    phone = announced(http, "phone1", workshop.update(1))
    with half_sent(server, phone, 100) as dead:
        # The dead connection's bytes are written when it is given up: the phone learns of them with its 409.
        answer = phone.patch(0, phone.data)
        check_problem(answer, 409, "Upload-Offset: 100 expected, found 0; go on from there")
        assert answer_on(dead).startswith(b"HTTP/1.1 409 ")
    assert phone.patch(100, phone.data[100:]).status_code == 204
    assert states(server) == [("phone1", "accepted")]


def test_a_request_that_comes_while_another_prepares_takes_over(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one gives way, though it has received nothing yet that could be interrupted."""
    came, hashed = [], FileBytes.hash_so_far
    alone = UploadSessions.exclusively

    def count(sessions: UploadSessions, identifier: str) -> contextlib.AbstractAsyncContextManager[object]:
        came.append(identifier)
        return alone(sessions, identifier)

    def prepare(uploads: FileBytes, identifier: str) -> object:
        until(lambda: len(came) == 2, "the second request")
        return hashed(uploads, identifier)

    monkeypatch.setattr(UploadSessions, "exclusively", count)
    monkeypatch.setattr(FileBytes, "hash_so_far", prepare)
    with start_server(idle_seconds=1e6) as server, client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
            first = pool.submit(stack.enter_context, half_sent(server, phone, 0))
            until(lambda: len(came) == 1, "the first request")
            assert phone.offset() == 0
            assert answer_on(first.result()).startswith(b"HTTP/1.1 409 ")


def test_pieces_with_checksums_that_break_off_are_taken_back(start_server: StartServer, workshop: Workshop) -> None:
    """Whatever broke them off: an idle connection is one that another takes over, or that is given up."""
    with start_server(idle_seconds=0.3) as server, client_of(server.url) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.create_upload(Upload_Metadata="")
        head = phone.patch_head(**{"Content-Length": "1000"}, **checksum(phone.data[:1000]))
        for ending in ("given up", "dropped", "taken over"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head + b"\0" * 500)
                if ending == "given up":
                    assert answer_on(connection).startswith(b"HTTP/1.1 408 ")
                elif ending == "taken over":
                    until(lambda: phone.patch(0, b"").status_code == 204)
            until(lambda: phone.offset() == 0)
        until(lambda: phone.patch(0, phone.data).status_code == 204)
        assert phone.outcome().json()["state"] == "accepted"


@pytest.mark.parametrize("meanwhile", ["nothing", "a newer request"])
def test_a_slow_disk_is_not_the_phone_s_fault(
    meanwhile: str, start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All has come and is still being written when the idle time is over, or the phone asks again."""
    store, writing = Receiving._store, threading.Event()

    def slowly(receiving: Receiving, file: Any, data: bytearray) -> None:
        writing.set()
        time.sleep(0.5)
        store(receiving, file, data)

    monkeypatch.setattr(Receiving, "_store", slowly)
    with start_server(idle_seconds=0.2) as server, client_of(server.url) as http, ThreadPoolExecutor(1) as pool:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.create_upload(Upload_Metadata="")
        sending = pool.submit(phone.patch, 0, phone.data)
        assert writing.wait(PATIENCE_SECONDS)
        if meanwhile == "a newer request":
            assert phone.offset() == len(phone.data)
        assert sending.result(PATIENCE_SECONDS).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"
        assert states(server) == [("phone1", "accepted")]
        sha256 = hashlib.sha256(phone.data).hexdigest()
        assert server.coordinator.folder.update(sha256).read_bytes() == phone.data


def test_two_devices_with_one_token_are_one_phone(start_server: StartServer, workshop: Workshop) -> None:
    """The update that is announced last counts, and it alone."""
    with start_server(security=SecuritySettings(auth="tokens")) as server:
        registry = PhoneRegistry(server.coordinator.ledger)
        token = registry.add("phone1", "phone", "1h", "test").token
        shared = [Connection(server.url, token) for _ in range(2)]
        updates = [workshop.update(1), workshop.update(1, tokens=7)]
        with ThreadPoolExecutor(2) as pool:
            ended = [
                pool.submit(upload_update, *pair, "phone1", None, QUICK) for pair in zip(shared, updates, strict=True)
            ]
            errors = [one.exception() for one in ended]
        assert sum(error is None for error in errors) == 1
        refused = next(error for error in errors if error is not None)
        assert isinstance(refused, ServerRefusedError)
        assert server.coordinator.current.accepted == 1
        assert [state for _, state in states(server)].count("accepted") == 1


@pytest.mark.parametrize("ending", ["expired", "replaced", "terminated"])
def test_an_upload_that_ends_while_its_bytes_come_is_gone(
    ending: str, server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = announced(http, "phone1", workshop.update(1))
    with half_sent(server, phone, 2000) as connection:
        if ending == "expired":
            monkeypatch.setattr(server.coordinator.ledger, "clock", lambda: time.time() + 10 * 86400)
            server.coordinator.tick()
        elif ending == "replaced":
            other = TusPhone(http, "phone1", workshop.update(1, tokens=7).read_bytes())
            assert other.create_upload().status_code == 201
        else:
            assert phone.delete().status_code == 204
        with contextlib.suppress(OSError):
            connection.sendall(phone.data[2000:])
        assert answer_on(connection).startswith((b"HTTP/1.1 410 ", b"HTTP/1.1 409 "))
    assert phone.head().status_code == 410
    path = phone.path.rpartition("/")[2]
    until(lambda: path not in incoming(server))
    assert server.coordinator.current.accepted == 0
    assert server.coordinator.uploads.find(path).state == {"replaced": "terminated"}.get(ending, ending)  # type: ignore[union-attr]


def test_an_upload_that_ends_before_it_is_decided_on_does_not_count(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        update = workshop.update(1)
        upload = coordinator.create_upload(UploadMetadata("phone1", update.stat().st_size))
        coordinator.folder.upload(upload.id).write_bytes(update.read_bytes())
        link_into_place = coordinator.folder.link_into_place

        def expires_meanwhile(source: Path, target: Path, name: str) -> None:
            link_into_place(source, target, name)
            coordinator.uploads.abort(upload.id, "expired", "too slow", 410)

        coordinator.folder.link_into_place = expires_meanwhile  # type: ignore[method-assign]
        with pytest.raises(Exception, match="the upload is expired: too slow; start a new one"):
            coordinator.ingest(upload.id, sha256_of_file(update), 7)
        coordinator.folder.link_into_place = link_into_place  # type: ignore[method-assign]
        assert coordinator.current.accepted == 0
        receipt = send(coordinator, update, "phone1")
        assert receipt.accepted == 1


def test_what_has_come_whole_is_ingested_and_does_not_expire(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The phone has done its part, and may not know that its last request broke off. Not while the disk refuses."""
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        update = workshop.update(1)
        data = update.read_bytes()
        whole, part = (coordinator.create_upload(UploadMetadata(phone, len(data))) for phone in ("phone1", "phone2"))
        coordinator.folder.upload(whole.id).write_bytes(data)
        coordinator.folder.upload(part.id).write_bytes(data[:-1])
        coordinator.tick()  # a request may still be at it
        assert coordinator.current.accepted == 0
        days = 10.0
        monkeypatch.setattr(coordinator.ledger, "clock", lambda: time.time() + days * 86400)
        bad_disk = raising(StorageError("updates: cannot write")), raising(OSError(errno.EIO, "cannot read"))
        places = (coordinator.folder, "link_into_place"), (coordinator.uploads.bytes, "sha256")
        for (place, name), error in zip(places, bad_disk, strict=True):
            with monkeypatch.context() as patch:
                patch.setattr(place, name, error)
                coordinator.tick()
            coordinator.tick()  # not again at once
            assert [upload.id for upload in coordinator.uploads.unfinished_uploads()] == [whole.id]
            days += 1
        coordinator.tick()
        assert (coordinator.current.accepted, coordinator.uploads.unfinished_uploads()) == (1, [])
        assert coordinator.ingest(whole.id, sha256_of_file(update), 0).accepted == 1  # a request that was late


def test_bytes_that_come_for_an_upload_that_is_over_leave_no_file(workshop: Workshop, tmp_path: Path) -> None:
    """A request that found the upload open a moment before it ended makes its file again."""
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        upload = coordinator.create_upload(UploadMetadata("phone1", 1000))
        coordinator.uploads.abort(upload.id, "terminated", "the phone gave it up", 410)
        coordinator.folder.upload(upload.id).write_bytes(bytes(100))
        coordinator.uploads.count_received(upload.id, 100)
        assert list(coordinator.folder.uploads.iterdir()) == []


def test_what_a_crash_left_on_the_disk_is_counted(workshop: Workshop, tmp_path: Path) -> None:
    """Nothing had counted it, as its request never ended."""
    update = workshop.update(1)
    size = update.stat().st_size
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        upload = coordinator.create_upload(UploadMetadata("phone1", size))
        coordinator.folder.upload(upload.id).write_bytes(update.read_bytes()[:-100])
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        coordinator.folder.upload(upload.id).write_bytes(update.read_bytes())
        coordinator.ingest(upload.id, sha256_of_file(update), 100)
    (entry,) = read_report(tmp_path / "state")["rounds"]
    assert (entry["useful_bytes"], entry["retried_bytes"], entry["up_body_bytes"]) == (size, 0, size)


def test_an_update_that_counts_in_a_later_round_takes_its_bytes_along(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1, late="next")) as coordinator:
        late = workshop.update(1)
        upload = coordinator.create_upload(UploadMetadata("phone1", late.stat().st_size))
        coordinator.uploads.count_received(upload.id, 1000)
        send(coordinator, workshop.update(2), "phone2")
        coordinator.folder.upload(upload.id).write_bytes(late.read_bytes())
        assert coordinator.ingest(upload.id, sha256_of_file(late), late.stat().st_size - 1000).round == 2
    for entry in read_report(tmp_path / "state")["rounds"]:
        assert entry["useful_bytes"] == entry["up_body_bytes"]
        assert entry["retried_bytes"] == 0


def test_memory_of_uploads_is_bounded(
    server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_sessions, "MAX_REMEMBERED", 3)
    tables: list[dict[str, Any]] = []
    remember = UploadSessions._forget

    def spying(self: Any) -> None:
        remember(self)
        tables.append(self._sessions)

    monkeypatch.setattr(UploadSessions, "_forget", spying)
    phones = [phone_with(http, f"phone{number}", workshop.update(number)) for number in range(8)]
    for offset in (0, 1000):
        for phone in phones:
            if offset == 0:
                phone.create_upload()
            assert phone.patch(offset, phone.data[offset : offset + 1000]).status_code == 204
            assert len(tables[-1]) <= 3
    # What was forgotten is hashed again.
    assert phones[0].patch(2000, phones[0].data[2000:]).status_code == 204
    assert phones[0].outcome().json()["state"] == "accepted"


def test_an_answer_that_is_lost_while_the_update_is_decided_on(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The phone comes back while the server is still reading the update: it waits, and gets its receipt."""
    going_on, at_it = threading.Event(), threading.Event()
    link_into_place = server.coordinator.folder.link_into_place

    def slowly(source: Path, target: Path, name: str) -> None:
        at_it.set()
        assert going_on.wait(PATIENCE_SECONDS)
        link_into_place(source, target, name)

    monkeypatch.setattr(server.coordinator.folder, "link_into_place", slowly)
    with client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        with half_sent(server, phone, len(phone.data)):
            assert at_it.wait(PATIENCE_SECONDS)
        with ThreadPoolExecutor(1) as pool:
            coming_back = pool.submit(upload_update, server.url, workshop.update(1), "phone1", None, QUICK)
            time.sleep(0.2)
            going_on.set()
            assert coming_back.result(PATIENCE_SECONDS).accepted == 1
    assert states(server) == [("phone1", "accepted")]
    (entry,) = final_report(server)["rounds"]  # a small update is sent with its announcement, though it is here already
    assert (entry["useful_bytes"], entry["retried_bytes"]) == (len(phone.data), len(phone.data))


def test_stopping_cuts_uploads_off_and_loses_nothing(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.server_agg.server.SHUTDOWN_SECONDS", 0)
    monkeypatch.setattr("phonograd.server_agg.http.receiving.WRITE_SECONDS", 0.0)
    with contextlib.ExitStack() as stack, start_server() as server, client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        stack.enter_context(half_sent(server, phone, 1234))
        until(lambda: arriving(server, phone).stat().st_size == 1234)
    with start_server() as server, client_of(server.url) as http:
        phone.http = http
        assert phone.offset() == 1234
        assert phone.patch(1234, phone.data[1234:]).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"


def test_what_changed_on_its_way_does_not_count_after_a_restart_either(workshop: Workshop, tmp_path: Path) -> None:
    state, update = tmp_path / "state", workshop.update(1)
    data = bytearray(update.read_bytes())
    data[-2] ^= 1  # still an update, of other weights
    with open_coordinator(workshop, state) as coordinator:
        metadata = UploadMetadata("phone1", len(data), sha256=sha256_of_file(update))
        upload = coordinator.create_upload(metadata)
        coordinator.folder.upload(upload.id).write_bytes(data)
    with open_coordinator(workshop, state) as coordinator:
        assert coordinator.current.accepted == 0
        again = coordinator.create_upload(metadata)
        assert (again.id, again.offset) == (upload.id, 0)
        coordinator.folder.upload(upload.id).write_bytes(update.read_bytes())
    with open_coordinator(workshop, state) as coordinator:
        assert coordinator.current.accepted == 1
