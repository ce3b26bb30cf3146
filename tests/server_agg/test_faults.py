"""Networks, disks and phones that fail: every one of them ends in the right status, with the ledger right."""

import contextlib
import hashlib
import random
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy.engine.default import DefaultDialect

from device_runtime.errors import ServerRefusedError, ServerUnreachableError, StorageError
from device_runtime.files import sha256_of_file
from device_runtime.resumable_upload import Patience
from device_runtime.server_client import Connection, upload_update
from device_runtime.tensor_file import load_tensors
from server_agg.http import uploads as upload_routes
from server_agg.http.receiving import Receiving
from server_agg.rounds.keeper import RoundKeeper
from server_agg.rounds.uploads import Announcement
from server_agg.security.registry import PhoneRegistry
from server_agg.security.settings import SecuritySettings
from server_agg.storage.state_folder import StateFolder
from tests.server_agg.relay import relay_to
from tests.server_agg.test_app import StartServer, check_problem, digest_of, eventually, post
from tests.server_agg.test_report import settled
from tests.server_agg.test_rounds import opened, send
from tests.server_agg.tus_phone import BODY, TusPhone, checksum, incoming, phone_with
from tests.server_agg.workshop import RunningServer, Workshop, settings_with

QUICK = Patience(attempts=500, first_wait_seconds=0.001, longest_wait_seconds=0.01)
KINDS = ("useful_bytes", "retried_bytes", "rejected_bytes", "late_bytes", "unfinished_bytes")


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


@contextlib.contextmanager
def talking(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        yield client


def adds_up(entry: dict[str, Any]) -> bool:
    return sum(entry[kind] for kind in KINDS) == entry["up_body_bytes"]


def states(server: RunningServer) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(server.state / "ledger.sqlite")) as ledger:
        return sorted(ledger.execute("SELECT phone, state FROM updates").fetchall())


@contextlib.contextmanager
def half_sent(server: RunningServer, phone: TusPhone, nbytes: int) -> Iterator[socket.socket]:
    """A connection on which a PATCH of all of `phone`'s data has come as far as `nbytes`, on disk."""
    head = (
        f"PATCH {phone.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n"
        f"Content-Type: {BODY}\r\nContent-Length: {len(phone.data)}\r\nPhonograd-Phone: {phone.name}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode())
        connection.sendall(phone.data[:nbytes])
        eventually(arriving(server, phone).exists)
        yield connection


def arriving(server: RunningServer, phone: TusPhone) -> Path:
    return server.keeper.folder.upload(phone.path.rpartition("/")[2])


def answer_on(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    return connection.recv(1 << 16)


# The network


@pytest.mark.parametrize("seed", range(3))
def test_connections_that_drop_anywhere(seed: int, start_server: StartServer, workshop: Workshop) -> None:
    chance = random.Random(seed)
    updates = [workshop.update(phone) for phone in range(2)]
    with start_server() as server:
        with relay_to(server.port, [chance.randrange(6000) for _ in range(40)]) as (_, url):

            def persist(phone: int) -> None:
                while True:
                    with contextlib.suppress(ServerUnreachableError):
                        upload_update(url, updates[phone], f"phone{phone}", patience=QUICK)
                        return

            with ThreadPoolExecutor(2) as pool:
                list(pool.map(persist, range(2)))
        assert server.keeper.current.round == 2
        model = server.keeper.current.base_sha256
        closed, open_ = settled(server)["rounds"]
        assert (closed["accepted"], closed["useful_bytes"]) == (2, sum(path.stat().st_size for path in updates))
        assert adds_up(closed)
        assert adds_up(open_)
        assert incoming(server) == []
    with opened(workshop, server.state.parent / "calm", settings_with(clients_per_round=2)) as keeper:
        receipts = [send(keeper, update, f"phone{phone}") for phone, update in enumerate(updates)]
    assert receipts[-1].model_sha256 == model


def test_patches_that_come_twice_or_out_of_order(server: RunningServer, workshop: Workshop, http: httpx.Client) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    pieces = [(offset, phone.data[offset : offset + 1000]) for offset in range(0, len(phone.data), 1000)]
    for offset, piece in (pieces[1], pieces[0], pieces[0], pieces[2], *pieces):
        here = phone.offset()
        answer = phone.patch(offset, piece)
        assert answer.status_code == (204 if offset == here else 409)
        assert answer.headers["Upload-Offset"] == str(phone.offset())
    assert phone.offset() == len(phone.data)
    # The last one once more, when it counts already.
    assert phone.patch(*pieces[-1]).status_code == 409
    assert phone.outcome().json()["receipt"]["accepted"] == 1
    (entry,) = settled(server)["rounds"]
    assert entry["useful_bytes"] == len(phone.data)
    assert entry["retried_bytes"] == entry["up_body_bytes"] - len(phone.data) > 0


def test_patches_of_one_upload_at_once(server: RunningServer, workshop: Workshop, http: httpx.Client) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()

    def once(_: int) -> int:
        with talking(server) as other:
            return TusPhone(other, phone.name, phone.data, phone.path).patch(0, phone.data).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(once, range(8)))
    assert set(answers) <= {204, 409}
    assert upload_update(server.url, workshop.update(1), "phone1").accepted == 1
    assert states(server) == [("phone1", "accepted")]
    assert server.keeper.folder.update(hashlib.sha256(phone.data).hexdigest()).read_bytes() == phone.data


def test_a_new_connection_takes_over_from_a_dead_one(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    with half_sent(server, phone, 100) as dead:
        # The dead connection's bytes are written when it is given up: the phone learns of them with its 409.
        answer = phone.patch(0, phone.data)
        check_problem(answer, 409, "Upload-Offset: 100 expected, found 0; go on from there")
        assert answer_on(dead).startswith(b"HTTP/1.1 409 ")
    assert phone.patch(100, phone.data[100:]).status_code == 204
    assert states(server) == [("phone1", "accepted")]


def test_the_newest_of_three_connections_wins(server: RunningServer, workshop: Workshop, http: httpx.Client) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(half_sent(server, phone, 0))
        started = time.monotonic()
        while phone.patch(0, phone.data).status_code != 204:
            pass
        assert time.monotonic() - started < 30  # half of an idle connection's time
    assert states(server) == [("phone1", "accepted")]


def test_pieces_with_checksums_that_break_off_are_taken_back(start_server: StartServer, workshop: Workshop) -> None:
    """Whatever broke them off: an idle connection is one that another takes over, or that is given up."""
    with start_server(idle_seconds=0.3) as server, talking(server) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.announce(Upload_Metadata="")
        head = {"Upload-Offset": "0", "Content-Type": BODY, "Content-Length": "1000", **checksum(phone.data[:1000])}
        lines = "".join(f"{name}: {value}\r\n" for name, value in phone.headers(head).items())
        request = f"PATCH {phone.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{lines}\r\n".encode()
        for ending in ("given up", "dropped", "taken over"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(request + b"\0" * 500)
                if ending == "given up":
                    assert answer_on(connection).startswith(b"HTTP/1.1 408 ")
                elif ending == "taken over":
                    eventually(lambda: phone.patch(0, b"").status_code == 204)
            eventually(lambda: phone.offset() == 0)
        eventually(lambda: phone.patch(0, phone.data).status_code == 204)
        assert phone.outcome().json()["state"] == "accepted"


def test_slow_phones_do_not_hold_up_the_others(start_server: StartServer, workshop: Workshop) -> None:
    """A byte at a time, scaled down: each comes well within the idle time, and is on disk soon."""
    with start_server(idle_seconds=1.0, clients_per_round=3) as server, talking(server) as http:
        slow = phone_with(http, "slow", workshop.update(9))
        slow.announce()
        with half_sent(server, slow, 1) as connection, half_sent(server, slow, 0) as silent:
            stop = threading.Event()

            def trickle() -> None:
                at = 0
                while not stop.wait(0.02):
                    connection.sendall(slow.data[at : at + 1])
                    at += 1

            del silent
            thread = threading.Thread(target=trickle)
            thread.start()
            try:
                for phone in (1, 2):
                    assert upload_update(server.url, workshop.update(phone), f"phone{phone}").accepted == phone
            finally:
                stop.set()
                thread.join()
        while not slow.patch(slow.offset(), slow.data[slow.offset() :]).is_success:
            pass
        assert server.keeper.current.round == 2


def test_what_a_slow_phone_sent_is_soon_on_disk(
    server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_agg.http.receiving.WRITE_SECONDS", 0.0)
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    with half_sent(server, phone, 100):
        eventually(lambda: arriving(server, phone).stat().st_size == 100)


@pytest.mark.parametrize("meanwhile", ["nothing", "a newer request"])
def test_a_slow_disk_is_not_the_phone_s_fault(
    meanwhile: str, start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All has come and is still being written when the idle time is over, or the phone asks anew."""
    store, writing = Receiving._store, threading.Event()

    def slowly(receiving: Receiving, file: Any, data: bytearray) -> None:
        writing.set()
        time.sleep(0.5)
        store(receiving, file, data)

    monkeypatch.setattr(Receiving, "_store", slowly)
    with start_server(idle_seconds=0.2) as server, talking(server) as http, ThreadPoolExecutor(1) as pool:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.announce(Upload_Metadata="")
        sending = pool.submit(phone.patch, 0, phone.data)
        assert writing.wait(10)
        if meanwhile == "a newer request":
            assert phone.offset() == len(phone.data)
        assert sending.result(10).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"
        assert states(server) == [("phone1", "accepted")]
        sha256 = hashlib.sha256(phone.data).hexdigest()
        assert server.keeper.folder.update(sha256).read_bytes() == phone.data


def test_a_hundred_uploads_at_once(start_server: StartServer, workshop: Workshop) -> None:
    updates = [workshop.update(phone, codec="rows-f32") for phone in range(100)]
    with start_server(clients_per_round=100) as server, talking(server) as http:

        def upload(phone: int) -> int:
            return int(phone_with(http, f"phone{phone}", updates[phone]).finish()["accepted"])

        with ThreadPoolExecutor(100) as pool:
            accepted = list(pool.map(upload, range(100)))
        assert max(accepted) == 100
        assert server.keeper.current.round == 2
        averaged = load_tensors(server.keeper.folder.model(server.keeper.current.base_sha256))
        closed = settled(server)["rounds"][0]
        assert (closed["accepted"], closed["retried_bytes"], closed["setups"]) == (100, 0, 100)
        assert adds_up(closed)
        assert incoming(server) == []
    for name, found in averaged.items():
        exact = np.mean([workshop.trained(phone)[name].astype(np.float64) for phone in range(100)], axis=0)
        assert np.linalg.norm(found - exact) <= 1e-6 * np.linalg.norm(exact)


def test_a_client_that_never_reads_harms_nobody_else(server: RunningServer, workshop: Workshop) -> None:
    update = workshop.update(1)
    data = update.read_bytes()
    head = (
        f"POST /v1/updates HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {len(data)}\r\n"
        f"Phonograd-Phone: phone1\r\nContent-Digest: {digest_of(data)}\r\n\r\n"
    ).encode()
    download = f"GET /v1/model HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(head + data + 200 * download)
        eventually(lambda: server.keeper.current.accepted == 1)
        assert upload_update(server.url, workshop.update(2), "phone2").round_closed


def test_a_body_that_is_refused_unread_is_counted_all_the_same(
    server: RunningServer, workshop: Workshop, http: httpx.Client
) -> None:
    """On a connection that is closed after it, and on one that goes on with other requests."""
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    large = bytes(1 << 20)
    with relay_to(server.port) as (wire, url), httpx.Client(base_url=url, trust_env=False) as other:
        for _ in range(2):
            answer = TusPhone(other, phone.name, phone.data, phone.path).patch(7, large)
            assert answer.status_code == 409
            other.get("/v1/round", headers={"Phonograd-Phone": "phone1"})
    sent = wire.up
    assert phone.send().status_code == 204
    (entry,) = settled(server)["rounds"]
    assert entry["retried_bytes"] == 2 * len(large)
    assert adds_up(entry)
    assert entry["up_body_bytes"] + entry["up_header_bytes"] > sent


# Time


class Clock:
    """Seconds since 1970 that pass when a test says so."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_more_phones_than_needed_and_no_more_than_that(start_server: StartServer, workshop: Workshop) -> None:
    with start_server(clients_per_round=1, max_clients=2, retry_seconds=7.0) as server, talking(server) as http:
        phones = [phone_with(http, f"phone{number}", workshop.update(number)) for number in range(3)]
        assert [phone.announce().status_code for phone in phones] == [201, 201, 409]
        refused = phones[2].announce()
        check_problem(refused, 409, "round 1: 2 phones take part, the most that may; ask again in the next round")
        assert refused.headers["Retry-After"] == "7"
        check_problem(post(http, workshop.update(2), "phone2"), 409, "the most that may")
        current = http.get("/v1/round", headers={"Phonograd-Phone": "phone2"})
        assert (current.json()["participate"], current.headers["Retry-After"]) == (False, "7")
        # One that gives up leaves its place to another.
        phones[1].delete()
        assert phones[2].announce().status_code == 201
        assert phones[0].patch(0, phones[0].data).status_code == 204
        check_problem(phones[2].patch(0, phones[2].data), 409, "the update is of round 1, which is over")
        assert phones[2].outcome().json()["state"] == "late"
        report = settled(server)
    assert (report["rounds"][0]["accepted"], report["rounds"][0]["late"]) == (1, 1)


def test_a_deadline_closes_a_round_that_has_enough(workshop: Workshop, tmp_path: Path, clock: Clock) -> None:
    settings = settings_with(clients_per_round=3, min_clients=2, deadline_seconds=60.0)
    keeper = RoundKeeper(workshop.artifacts, tmp_path / "state", settings, clock)
    try:
        assert keeper.current.closes_at == pytest.approx(clock.now + 60)
        send(keeper, workshop.update(1), "a")
        clock.now += 61
        keeper.tick()
        assert keeper.current.round == 1  # one phone is not enough: it waits for another
        receipt = send(keeper, workshop.update(2), "b")
        assert (receipt.round_closed, keeper.current.round) == (True, 2)
        clock.now += 61
        keeper.tick()
        assert keeper.current.round == 2
        base = keeper.folder.model(keeper.current.base_sha256)
        for seed in (3, 4):
            send(keeper, workshop.update(seed, 2, base=base), f"p{seed}")
        assert keeper.current.round == 3
    finally:
        keeper.close()


def test_a_late_update_moves_the_next_round_s_model_by_what_its_phone_learned(
    start_server: StartServer, workshop: Workshop
) -> None:
    with start_server(clients_per_round=1, late="next") as server, talking(server) as http:
        late = phone_with(http, "late", workshop.update(2))
        late.announce()
        late.patch(0, late.data[:1000])
        assert post(http, workshop.update(1), "phone1").json()["round_closed"]
        second = load_tensors(server.keeper.folder.model(server.keeper.current.base_sha256))
        assert late.patch(1000, late.data[1000:]).status_code == 204
        assert late.outcome().json()["receipt"]["round"] == 2
        found = load_tensors(server.keeper.folder.model(server.keeper.current.base_sha256))
        report = settled(server)
    base, trained = load_tensors(workshop.base_path), workshop.trained(2)
    for name, weights in found.items():
        learned = trained[name].astype(np.float64) - base[name]
        assert np.allclose(weights, second[name] + learned, rtol=0, atol=1e-6)
        assert not np.allclose(weights, trained[name], rtol=0, atol=1e-4)
    assert [entry["late_folded"] for entry in report["rounds"]] == [0, 1, 0]


def test_a_late_update_of_a_model_that_is_gone(workshop: Workshop, tmp_path: Path) -> None:
    settings = settings_with(clients_per_round=1, late="next", models_kept=1)
    with opened(workshop, tmp_path / "state", settings) as keeper:
        send(keeper, workshop.update(1), "a")
        with pytest.raises(Exception, match="is of round 1, whose model is not kept any more") as caught:
            send(keeper, workshop.update(2), "b")
        assert type(caught.value).__name__ == "LateUpdateError"


def test_the_model_of_a_late_update_is_kept_as_long_as_it_is_needed(workshop: Workshop, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with opened(workshop, state, settings_with(clients_per_round=1, late="next")) as keeper:
        send(keeper, workshop.update(1), "a")
    models = []
    for kept in (None, 1):
        settings = settings_with(clients_per_round=2, late="next", models_kept=kept)
        with opened(workshop, state, settings) as keeper:
            if kept is None:
                send(keeper, workshop.update(2), "b")
            else:
                base = keeper.folder.model(keeper.current.base_sha256)
                models.append(send(keeper, workshop.update(3, 2, base=base), "c").model_sha256)
    assert models[0] is not None


# Rollback


def test_going_back_to_an_earlier_model(start_server: StartServer, workshop: Workshop) -> None:
    with start_server(clients_per_round=1) as server, talking(server) as http:
        first = post(http, workshop.update(1), "a").json()["model_sha256"]
        base = server.keeper.folder.model(first)
        second = post(http, workshop.update(2, 2, base=base), "a").json()["model_sha256"]
        open_base = server.keeper.folder.model(second)
        started = phone_with(http, "b", workshop.update(3, 3, base=open_base))
        of_first = phone_with(http, "c", workshop.update(4, 2, base=base))
        started.announce()
        started.patch(0, started.data[:100])

        check_problem(http.post("/v1/rollback?round=3"), 404, "round 3: a closed round")
        check_problem(http.post("/v1/rollback?round=999999999"), 404, "a closed round")
        opened_ = http.post("/v1/rollback?round=1").json()
        assert (opened_["round"], opened_["base_sha256"], opened_["accepted"]) == (4, first, 0)

        # What was trained from the model that is given up is late; what was trained from this one counts.
        check_problem(started.patch(100, started.data[100:]), 409, "which is over; round 4 is open")
        assert of_first.send().status_code == 204
        report, lineage = settled(server), http.get("/v1/models").json()["models"]
    assert [entry["rolled_back"] for entry in report["rounds"]] == [False, True, True, False, False]
    assert [entry["ending"] for entry in report["rounds"]] == ["full", "full", "rollback", "full", None]
    parents = {model["sha256"]: model["parent_sha256"] for model in lineage}
    newest = report["rounds"][3]["model_sha256"]
    assert (parents[newest], parents[second], parents[first]) == (first, first, workshop.base_sha256)
    with start_server(clients_per_round=1) as server:
        assert (server.keeper.current.round, server.keeper.current.base_sha256) == (5, newest)


def test_what_a_rollback_discards_may_be_sent_again(start_server: StartServer, workshop: Workshop) -> None:
    with start_server() as server, talking(server) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.send()
        http.post("/v1/rollback?round=0")
        assert server.keeper.current.accepted == 0
        assert phone.head().status_code == 410
        assert phone.outcome().json()["state"] == "discarded"
        assert phone.send().status_code == 204
        assert server.keeper.current.accepted == 1
        assert upload_update(server.url, workshop.update(2), "phone2").round_closed


# Uploads that end while they come


@pytest.mark.parametrize("ending", ["expired", "replaced", "terminated"])
def test_an_upload_that_ends_while_its_bytes_come_is_gone(
    ending: str, server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.announce()
    with half_sent(server, phone, 2000) as connection:
        if ending == "expired":
            monkeypatch.setattr(server.keeper.ledger, "clock", lambda: time.time() + 10 * 86400)
            server.keeper.tick()
        elif ending == "replaced":
            other = TusPhone(http, "phone1", workshop.update(1, tokens=7).read_bytes())
            assert other.announce().status_code == 201
        else:
            assert phone.delete().status_code == 204
        with contextlib.suppress(OSError):
            connection.sendall(phone.data[2000:])
        assert answer_on(connection).startswith((b"HTTP/1.1 410 ", b"HTTP/1.1 409 "))
    assert phone.head().status_code == 410
    path = phone.path.rpartition("/")[2]
    eventually(lambda: path not in incoming(server))
    assert server.keeper.current.accepted == 0
    assert server.keeper.uploads.find(path).state == {"replaced": "terminated"}.get(ending, ending)  # type: ignore[union-attr]


def test_an_upload_that_ends_before_it_is_decided_on_does_not_count(workshop: Workshop, tmp_path: Path) -> None:
    with opened(workshop, tmp_path / "state") as keeper:
        update = workshop.update(1)
        upload = keeper.announce(Announcement("phone1", update.stat().st_size))
        keeper.folder.upload(upload.id).write_bytes(update.read_bytes())
        link_in = keeper.folder.link_in

        def expires_meanwhile(source: Path, target: Path) -> None:
            link_in(source, target)
            keeper.uploads.give_up(upload.id, "expired", "too slow", 410)

        keeper.folder.link_in = expires_meanwhile  # type: ignore[method-assign]
        with pytest.raises(Exception, match="the upload is expired: too slow; announce it anew"):
            keeper.settle(upload.id, sha256_of_file(update), 7)
        keeper.folder.link_in = link_in  # type: ignore[method-assign]
        assert keeper.current.accepted == 0
        receipt = send(keeper, update, "phone1")
        assert receipt.accepted == 1


def test_bytes_that_come_for_an_upload_that_is_over_leave_no_file(workshop: Workshop, tmp_path: Path) -> None:
    """A request that found the upload open a moment before it ended makes its file anew."""
    with opened(workshop, tmp_path / "state") as keeper:
        upload = keeper.announce(Announcement("phone1", 1000))
        keeper.uploads.give_up(upload.id, "terminated", "the phone gave it up", 410)
        keeper.folder.upload(upload.id).write_bytes(bytes(100))
        keeper.uploads.received(upload.id, 100)
        assert list(keeper.folder.uploads.iterdir()) == []


def test_memory_of_uploads_is_bounded(
    server: RunningServer, workshop: Workshop, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_routes, "MAX_REMEMBERED", 3)
    tables: list[dict[str, Any]] = []
    remember = upload_routes.UploadRoutes._forget

    def spying(self: Any) -> None:
        remember(self)
        tables.append(self._live)

    monkeypatch.setattr(upload_routes.UploadRoutes, "_forget", spying)
    phones = [phone_with(http, f"phone{number}", workshop.update(number)) for number in range(8)]
    for offset in (0, 1000):
        for phone in phones:
            if offset == 0:
                phone.announce()
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
    link_in = server.keeper.folder.link_in

    def slowly(source: Path, target: Path) -> None:
        at_it.set()
        assert going_on.wait(20)
        link_in(source, target)

    monkeypatch.setattr(server.keeper.folder, "link_in", slowly)
    with talking(server) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.announce()
        with half_sent(server, phone, len(phone.data)):
            assert at_it.wait(20)
        with ThreadPoolExecutor(1) as pool:
            coming_back = pool.submit(upload_update, server.url, workshop.update(1), "phone1", None, QUICK)
            time.sleep(0.2)
            going_on.set()
            assert coming_back.result(20).accepted == 1
    assert states(server) == [("phone1", "accepted")]
    (entry,) = settled(server)["rounds"]
    assert (entry["useful_bytes"], entry["retried_bytes"]) == (len(phone.data), 0)


def test_stopping_cuts_uploads_off_and_loses_nothing(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_agg.server.STOP_SECONDS", 0)
    monkeypatch.setattr("server_agg.http.receiving.WRITE_SECONDS", 0.0)
    with contextlib.ExitStack() as stack, start_server() as server, talking(server) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.announce()
        stack.enter_context(half_sent(server, phone, 1234))
        eventually(lambda: arriving(server, phone).stat().st_size == 1234)
    with start_server() as server, talking(server) as http:
        phone.http = http
        assert phone.offset() == 1234
        assert phone.patch(1234, phone.data[1234:]).status_code == 204
        assert phone.outcome().json()["state"] == "accepted"


# Restarts


def test_what_changed_on_its_way_does_not_count_after_a_restart_either(workshop: Workshop, tmp_path: Path) -> None:
    state, update = tmp_path / "state", workshop.update(1)
    data = bytearray(update.read_bytes())
    data[-2] ^= 1  # still an update, of other weights
    with opened(workshop, state) as keeper:
        announced = Announcement("phone1", len(data), sha256=sha256_of_file(update))
        upload = keeper.announce(announced)
        keeper.folder.upload(upload.id).write_bytes(data)
    with opened(workshop, state) as keeper:
        assert keeper.current.accepted == 0
        again = keeper.announce(announced)
        assert (again.id, again.offset) == (upload.id, 0)
        keeper.folder.upload(upload.id).write_bytes(update.read_bytes())
    with opened(workshop, state) as keeper:
        assert keeper.current.accepted == 1


# The disk


class FailingDisk:
    """From its `armed` on, refuses at the step of that number: once, or from there on."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self._steps = 0
        self._at: int | None = None
        self._lasting = False
        self.refused = 0
        for owner, name in (
            ("os", "fsync"), ("os", "link"), ("os", "replace"), ("os", "ftruncate"),
        ):  # fmt: skip
            self._around(patch, __import__(owner), name, OSError(28, "No space left on device"))
        full = sqlite3.OperationalError("database or disk is full")
        self._around(patch, DefaultDialect, "do_commit", full)
        store = Receiving._store

        def store_half(receiving: Receiving, file: Any, data: bytearray) -> None:
            if self._refuses():
                store(receiving, file, data[: len(data) // 2])
                raise OSError(28, "No space left on device")
            store(receiving, file, data)

        patch.setattr(Receiving, "_store", store_half)

    def _around(self, patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
        function = getattr(owner, name)

        def refusing(*arguments: Any, **named: Any) -> Any:
            if self._refuses():
                raise error
            return function(*arguments, **named)

        patch.setattr(owner, name, refusing)

    def _refuses(self) -> bool:
        if self._at is None or threading.current_thread().name == "rounds":
            return False
        self._steps += 1
        refuses = self._steps >= self._at if self._lasting else self._steps == self._at
        self.refused += refuses
        return refuses

    def arm(self, at: int, lasting: bool) -> None:
        self._steps, self._at, self._lasting, self.refused = 0, at, lasting, 0

    def disarm(self) -> None:
        self._at = None


@pytest.mark.parametrize("lasting", [False, True])
def test_a_disk_that_is_full_at_any_step(
    lasting: bool, start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """507 and nothing lost at every step of an upload and a round's end; once there is space the same phone goes on."""
    with start_server(clients_per_round=1) as server:
        disk = FailingDisk(monkeypatch)
        for at in range(1, 100):
            number = server.keeper.current.round
            base = server.keeper.folder.model(server.keeper.current.base_sha256)
            with talking(server) as http:
                phone = phone_with(http, "phone1", workshop.update(1, number, base=base))
                disk.arm(at, lasting)
                answer = phone.send(4000)
                disk.disarm()
                assert answer.status_code in (201, 204, 507), answer.text
                if answer.status_code == 507:
                    check_problem(answer, 507, "its disk refuses; send again later")
                # There is space again.
                receipt = phone.finish()
            assert (receipt["round"], receipt["accepted"]) == (number, 1)
            server.keeper.tick()
            assert server.keeper.current.round == number + 1
            found = load_tensors(server.keeper.folder.model(server.keeper.current.base_sha256))
            for name, trained in workshop.trained(1, base=base).items():
                assert np.allclose(found[name], trained, rtol=0, atol=1e-6)
            if not disk.refused:
                break
        assert at > 10
        assert incoming(server) == []
        assert [entry["accepted"] for entry in settled(server)["rounds"]] == [1] * at + [0]


def test_a_round_s_end_is_finished_before_the_next_is_touched(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended in the ledger, the disk refuses what follows: the next round must not take the ended one's place."""
    with opened(workshop, tmp_path / "state", settings_with(clients_per_round=1)) as keeper:
        with monkeypatch.context() as patch:
            patch.setattr(StateFolder, "keep_updates", refuse)
            receipt = send(keeper, workshop.update(1), "a")
            assert receipt.round_closed
            with pytest.raises(StorageError):
                send(keeper, workshop.update(2), "b")
        keeper.tick()
        assert (keeper.current.round, keeper.current.accepted) == (2, 0)
        assert keeper.current.base_sha256 == receipt.model_sha256


def refuse(*_: object) -> None:
    raise StorageError("updates: cannot write: Input/output error")


def test_our_client_goes_on_once_the_disk_has_space(
    server: RunningServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = workshop.update(1)
    with monkeypatch.context() as patch:
        patch.setattr(server.keeper.folder, "link_in", refuse)
        for _ in range(2):
            with pytest.raises(ServerRefusedError, match=r"refused \(507 "):
                upload_update(server.url, update, "phone1", patience=QUICK)
    assert upload_update(server.url, update, "phone1", patience=QUICK).accepted == 1
    (entry,) = settled(server)["rounds"]
    assert (entry["useful_bytes"], entry["retried_bytes"]) == (update.stat().st_size, 0)


def test_another_process_may_hold_the_ledger(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server_agg.storage.ledger.BUSY_SECONDS", 0.5)
    with start_server() as server, talking(server) as http:
        phone = phone_with(http, "phone1", workshop.update(1))
        phone.announce()
        with contextlib.closing(sqlite3.connect(server.state / "ledger.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            release = threading.Timer(0.2, other.execute, ("ROLLBACK",))
            other.execute("ROLLBACK")
            del release
            other.execute("BEGIN IMMEDIATE")
            check_problem(phone.patch(0, phone.data), 507, "send again later")
            assert http.get("/v1/round").json()["accepted"] == 0
            other.execute("ROLLBACK")
        assert phone.patch(len(phone.data), b"").status_code == 204
        assert phone.outcome().json()["state"] == "accepted"


def test_too_many_open_files_is_not_the_phone_s_fault(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(workshop, tmp_path / "state") as keeper:
        update = workshop.update(1)
        upload = keeper.announce(Announcement("phone1", update.stat().st_size))
        keeper.folder.upload(upload.id).write_bytes(update.read_bytes())
        with monkeypatch.context() as patch:
            patch.setattr("device_runtime.tensor_file.os.open", no_descriptor)
            with pytest.raises(StorageError, match="Too many open files"):
                keeper.settle(upload.id, sha256_of_file(update), 0)
        assert keeper.settle(upload.id, sha256_of_file(update), 0).accepted == 1


def no_descriptor(*_: object) -> int:
    raise OSError(24, "Too many open files")


# Tokens


def test_tokens_shared_expired_and_revoked(start_server: StartServer, workshop: Workshop, tmp_path: Path) -> None:
    with start_server(security=SecuritySettings(auth="tokens")) as server:
        registry = PhoneRegistry(server.keeper.ledger)
        token = registry.add("phone1", "phone", "1h", "test").token
        shared = [Connection(server.url, token) for _ in range(2)]
        updates = [workshop.update(1), workshop.update(1, tokens=7)]
        # Two devices with one token are one phone: the update that is announced last counts, and it alone.
        with ThreadPoolExecutor(2) as pool:
            ended = [
                pool.submit(upload_update, *pair, "phone1", None, QUICK) for pair in zip(shared, updates, strict=True)
            ]
            errors = [one.exception() for one in ended]
        assert sum(error is None for error in errors) == 1
        refused = next(error for error in errors if error is not None)
        assert isinstance(refused, ServerRefusedError)
        assert server.keeper.current.accepted == 1
        assert [state for _, state in states(server)].count("accepted") == 1

        expired = registry.add("phone2", "phone", "0s", "test").token
        with pytest.raises(ServerRefusedError, match=r"refused \(401 Unauthorized\): .*the token has expired"):
            upload_update(Connection(server.url, expired), workshop.update(2), "phone2")
        revoked = registry.add("phone3", "phone", "1h", "test").token
        with httpx.Client(base_url=server.url, trust_env=False, headers={"Authorization": f"Bearer {revoked}"}) as http:
            phone = phone_with(http, "phone3", workshop.update(3))
            phone.announce()
            phone.patch(0, phone.data[:100])
            registry.revoke("phone3", "test")
            assert phone.patch(100, phone.data[100:]).status_code == 401
            phone.name = "phone1"
            assert phone.head().status_code == 401
        fresh = registry.add("phone3", "phone", "1h", "test").token
        receipt = upload_update(Connection(server.url, fresh), workshop.update(3), "phone3")
        assert (receipt.accepted, receipt.round_closed) == (2, True)
