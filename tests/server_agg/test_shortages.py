"""A machine that has no more descriptors, memory or threads: 503, few words in the log, nothing lost."""

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from phonograd.device_runtime.base.errors import OutOfMemoryError, StorageError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.base.system import most_open_files
from phonograd.server_agg import shortages
from phonograd.server_agg.http import accepting, wire
from phonograd.server_agg.http.receiving import Receiving
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.guard import Guard
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.upload_bytes import FileSink
from tests.server_agg.faults import answer_on, raising
from tests.server_agg.http_uploads import check_problem, head_of
from tests.server_agg.tus_phone import phone_with
from tests.server_agg.workshop import StartServer, Workshop, client_of
from tests.support.waiting import PATIENCE_SECONDS, until

LIMIT, IDLE, SENDING = 128, 200, 60


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT // 2, LIMIT))


@pytest.mark.long
def test_out_of_descriptors(workshop: Workshop, state: Path) -> None:
    updates = [workshop.update(number).read_bytes() for number in range(SENDING)]
    line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", workshop.artifacts.folder, "--state", state]
    line += ["--port", "0", "--clients-per-round", "1000", "--json"]
    with (
        (state.parent / "log").open("w+") as log,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, preexec_fn=few_descriptors) as server,  # noqa: PLW1509
        ExitStack() as all_,
    ):
        all_.callback(server.kill)
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        port = int(url.rpartition(":")[2])
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE) == (LIMIT, LIMIT)

        def in_use() -> int:
            return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))

        def connect() -> socket.socket:
            return all_.enter_context(socket.create_connection(("127.0.0.1", port)))

        before = in_use()
        idle = [connect() for _ in range(IDLE)]
        assert httpx.get(f"{url}/v1/round", timeout=60).status_code == 200
        assert answer_on(idle[0]).startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\n")
        for connection in idle:
            connection.close()
        until(lambda: in_use() < LIMIT // 4, "the end of the idle ones")
        sending = {connect(): number for number in range(SENDING)}
        until(lambda: in_use() >= before + SENDING, "all connections")
        for connection, number in sending.items():
            data = updates[number]
            connection.sendall(head_of(data, f"phone{number}") + data[: len(data) // 2])
        until(lambda: in_use() >= int(0.95 * LIMIT), "all but the reserve is in use")
        assert httpx.get(f"{url}/v1/round", headers={"Phonograd-Phone": "new"}, timeout=60).status_code == 200
        accepted = set()
        for connection, number in sending.items():
            connection.sendall(updates[number][len(updates[number]) // 2 :])
            if (answer := answer_on(connection)).startswith(b"HTTP/1.1 201"):
                accepted.add(number)
            else:
                assert answer.startswith(b"HTTP/1.1 503")
                assert b"\r\nretry-after: 2\r\n" in answer.lower()
        assert 0 < len(accepted) < SENDING
        with client_of(url) as http:
            for number in set(range(SENDING)) - accepted:
                phone_with(http, f"phone{number}", workshop.update(number)).finish()
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_SECONDS) == 0
        log.seek(0)
        logged = log.read()
    assert read_report(state)["rounds"][0]["accepted"] == SENDING
    assert logged.count("no more open files") == 1
    assert "Traceback" not in logged
    assert "ERROR" not in logged


SHORT = [
    (MemoryError(), "memory"),
    (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory"),
    (OutOfMemoryError("update: no memory"), "memory"),
    (RuntimeError("can't start new thread"), "threads"),
    (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
]
STEPS = [
    (Guard, "_identify"),
    (Ledger, "reading"),
    (Ledger, "writing"),
    (Receiving, "_store"),
    (FileSink, "write"),
    (Coordinator, "ingest"),
    (RoundAggregator, "take"),
]


@pytest.mark.parametrize(("error", "what"), SHORT, ids=lambda value: str(value).replace(" ", "-"))
def test_a_shortage_is_no_error_of_the_disk(
    error: Exception,
    what: str,
    start_server: StartServer,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """503 wherever it comes, one line for all; and the same phone goes on."""
    monkeypatch.setattr(shortages, "_said", {})
    with start_server(clients_per_round=100) as server, client_of(server.url) as http:
        for number, (owner, name) in enumerate(STEPS):
            phone = phone_with(http, f"phone{number}", workshop.update(number))
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, raising(error))
                answer = phone.send(4000)
            check_problem(answer, 503, f"it has no more {what} at the moment; send again later")
            assert answer.headers["Retry-After"] == "2"
            assert phone.finish()["accepted"] == number + 1
    assert caplog.text.count(f"no more {what} for the server") == 1
    assert "Traceback" not in caplog.text
    assert "disk" not in caplog.text


def test_asyncio_pauses_when_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio calls `accept` a hundred times and more, unless it hears that nobody waits."""
    monkeypatch.setattr(accepting, "in_use", most_open_files)

    async def refusals() -> list[type]:
        found = []
        with accepting.ReservingListener() as listener:
            listener._full, listener._base = True, 1
            for _ in range(4):
                try:
                    listener.accept()
                except OSError as error:
                    found.append(type(error))
        return found

    assert asyncio.run(refusals()) == [accepting.NoDescriptorError, BlockingIOError] * 2


def test_nobody_is_locked_out_by_what_the_server_itself_has_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "in_use", most_open_files)
    with accepting.ReservingListener() as listener:
        listener._full, listener._base = True, most_open_files() - 1
        listener.setblocking(False)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(BlockingIOError):  # it asked, and nobody waits
            listener.accept()
    assert not listener._pausing


def test_room_is_made_by_those_who_never_asked() -> None:
    async def end_of_both() -> list[bool]:
        ends = [Mock(**{"get_extra_info.return_value": None}) for _ in range(2)]
        stranger, phone = (wire.Connection(end, 1.0) for end in ends)
        phone.reader.receive(b"GET /v1/round HTTP/1.1\r\nHost: localhost\r\n\r\n")
        phone.next_request()
        phone.expect_request()
        wire.turn_away(0.0)
        stranger.lose()
        return [end.close.called for end in ends]

    assert asyncio.run(end_of_both()) == [True, False]


@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [(1024, 4096, 4096), (1024, 1 << 20, 65_536), (1 << 17, 1 << 20, 1 << 17), (64, -1, 65_536)],
)
def test_the_limit_of_descriptors_is_raised(soft: int, hard: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.append(new))
    assert most_open_files(raised_to=shortages.MOST_DESCRIPTORS) == most
    assert limits[-1] == (most, hard)


@pytest.mark.parametrize(("in_use", "what"), [(LIMIT, "open files"), (LIMIT // 2, None)])
def test_sqlite_does_not_say_why_it_opens_no_file(
    in_use: int, what: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortages, "most_open_files", lambda: LIMIT)
    monkeypatch.setattr(shortages, "in_use", lambda: in_use)
    assert shortages.shortage_in(StorageError("ledger: the ledger failed: unable to open database file")) == what


def test_the_error_of_a_full_table_of_files_tells_of_no_other_place() -> None:
    message = r"cannot write: Too many open files; allow more open files \(ulimit -n\)"
    with pytest.raises(StorageError, match=message), storage_errors(Path("update")):
        raise SHORT[-1][0]
