"""Senders: one socket for each phone. They use sendfile, so that sending takes little CPU time."""

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from phonograd.bench.contestants import BenchError
from phonograd.bench.uploads.bodies import Body
from phonograd.device_runtime.client.protocol import TUS_BODY_TYPE
from phonograd.device_runtime.client.resumable_upload import announcement

HOST = "127.0.0.1"
ANSWER_SECONDS = 600.0
RECEIVE_BYTES = 1 << 16
LAST_BYTES = 1 << 16  # bytes that a pausing sender holds back


@dataclass(frozen=True)
class Upload:
    """What one socket sends: `opening` (an HTTP request's head, or nothing), then the body.

    expected: the status of the answer; None for a receiver that closes the connection without an answer. pause: seconds
    to wait before LAST_BYTES.
    """

    opening: bytes
    body: Body
    expected: int | None
    pause: float = 0.0


@dataclass(frozen=True)
class Sent:
    """Times of an upload's first byte, last byte and complete answer: seconds of `time.perf_counter`."""

    began: float
    last_byte: float
    answered: float


def post_update(body: Body, phone: str, *, pause: float = 0.0) -> Upload:
    """An upload in one request."""
    return Upload(_post(body, phone, body.sha256), body, 201, pause)


def post_damaged(body: Body, phone: str) -> Upload:
    """An upload that the server receives completely and then refuses, because its hash is not the announced one."""
    return Upload(_post(body, phone, "0" * 64), body, 460)


def put_file(body: Body, name: str) -> Upload:
    """The same bytes, for the bare handler."""
    return Upload(_head("PUT", f"/{name}", body, ()), body, 201)


def raw(body: Body) -> Upload:
    """The same bytes without HTTP."""
    return Upload(b"", body, None)


def send_at_once(port: int, uploads: Sequence[Upload]) -> list[Sent]:
    """Send all uploads at once to this machine's `port`. Raises BenchError for an unexpected answer."""
    start = threading.Barrier(len(uploads))

    def send(upload: Upload) -> Sent:
        start.wait()
        return _send(port, upload)

    with ThreadPoolExecutor(len(uploads)) as pool:
        return list(pool.map(send, uploads))


def upload_headers(phone: str, nbytes: int, sha256: str) -> dict[str, str]:
    """The headers of a whole upload in one request (tus's creation-with-upload); sha256: hex."""
    return announcement({"sha256": sha256}, nbytes, phone) | {"Content-Type": TUS_BODY_TYPE}


def _post(body: Body, phone: str, sha256: str) -> bytes:
    headers = upload_headers(phone, body.nbytes, sha256)
    return _head("POST", "/v1/uploads", body, [f"{name}: {value}" for name, value in headers.items()])


def _head(method: str, target: str, body: Body, lines: Sequence[str]) -> bytes:
    fixed = (f"{method} {target} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {body.nbytes}", "Connection: close")
    return "".join(f"{line}\r\n" for line in (*fixed, *lines, "")).encode("ascii")


def _send(port: int, upload: Upload) -> Sent:
    body = upload.body
    with _connect(port) as connection, body.path.open("rb") as file:
        began = time.perf_counter()
        # A receiver that refuses early closes the connection; its answer is still read below.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(upload.opening + body.head)
            held_back = max(body.offset, body.stop - LAST_BYTES) if upload.pause else body.stop
            _send_range(connection, file.fileno(), body.offset, held_back)
            time.sleep(upload.pause)
            _send_range(connection, file.fileno(), held_back, body.stop)
            connection.sendall(body.tail)
            if upload.expected is None:
                _end_sending(connection)
        last_byte = time.perf_counter()
        answer = _answer(connection)
        answered = time.perf_counter()
    if _status(answer) != upload.expected:
        told = answer.rpartition(b"\r\n")[2].decode("utf-8", "replace")[:300] or "no explanation"
        raise BenchError(f"bench: status {upload.expected} expected for an upload, found {_status(answer)}: {told}")
    return Sent(began, last_byte, answered)


def _connect(port: int) -> socket.socket:
    try:
        return socket.create_connection((HOST, port), ANSWER_SECONDS)
    except OSError as error:
        raise BenchError(
            f"bench: {HOST}:{port} refuses connections ({error.strerror}); has its process exited?"
        ) from error


def _send_range(connection: socket.socket, file: int, start: int, stop: int) -> None:
    """Send bytes [start, stop) by blocking sendfile; with a timeout the socket would be non-blocking."""
    connection.setblocking(True)
    while start < stop:
        start += os.sendfile(connection.fileno(), file, start, stop - start)
    connection.settimeout(ANSWER_SECONDS)


def _end_sending(connection: socket.socket) -> None:
    """Half-close the connection, unless the receiver has closed it."""
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise


def _answer(connection: socket.socket) -> bytes:
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(RECEIVE_BYTES):
            answer += piece
    return answer


def _status(answer: bytes) -> int | None:
    if not answer:
        return None
    words = answer.split(b" ", 2)
    return int(words[1]) if words[0].startswith(b"HTTP/") and len(words) > 1 and words[1].isdigit() else -1
