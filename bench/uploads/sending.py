"""Senders: a socket a phone, the file handed over by sendfile, so that the load costs as little as can be."""

import base64
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
from phonograd.device_runtime.client.protocol import PHONE_HEADER

HOST = "127.0.0.1"
ANSWER_SECONDS = 600.0
RECEIVE_BYTES = 1 << 16
LAST_BYTES = 1 << 16  # what is held back where a sender pauses before its end


@dataclass(frozen=True)
class Parcel:
    """What one socket sends: `opening` (an HTTP request's head, or nothing), then the body; and the status it expects.

    expected: None for a receiver that closes the connection without a word. pause: seconds before LAST_BYTES.
    """

    opening: bytes
    body: Body
    expected: int | None
    pause: float = 0.0


@dataclass(frozen=True)
class Sent:
    """When a parcel's first and last byte left and its answer was whole: seconds of `time.perf_counter`."""

    began: float
    last_byte: float
    answered: float


def post_update(body: Body, phone: str, *, pause: float = 0.0) -> Parcel:
    """An upload as `phonograd upload` sends it."""
    return Parcel(_post(body, phone, bytes.fromhex(body.sha256)), body, 201, pause)


def post_damaged(body: Body, phone: str) -> Parcel:
    """An upload that is received whole and then refused: its bytes have another hash than announced."""
    return Parcel(_post(body, phone, bytes(32)), body, 400)


def put_file(body: Body, name: str) -> Parcel:
    """The same bytes to the bare handler."""
    return Parcel(_head("PUT", f"/{name}", body, ()), body, 201)


def raw(body: Body) -> Parcel:
    """The same bytes and nothing else."""
    return Parcel(b"", body, None)


def send_at_once(port: int, parcels: Sequence[Parcel]) -> list[Sent]:
    """Send all parcels side by side to this machine's `port`. Raises BenchError for an answer that is not expected."""
    start = threading.Barrier(len(parcels))

    def send(parcel: Parcel) -> Sent:
        start.wait()
        return _send(port, parcel)

    with ThreadPoolExecutor(len(parcels)) as pool:
        return list(pool.map(send, parcels))


def _post(body: Body, phone: str, digest: bytes) -> bytes:
    announced = f"Content-Digest: sha-256=:{base64.b64encode(digest).decode()}:"
    return _head("POST", "/v1/updates", body, (announced, f"{PHONE_HEADER}: {phone}"))


def _head(method: str, target: str, body: Body, lines: Sequence[str]) -> bytes:
    fixed = (f"{method} {target} HTTP/1.1", f"Host: {HOST}", f"Content-Length: {body.nbytes}", "Connection: close")
    return "".join(f"{line}\r\n" for line in (*fixed, *lines, "")).encode("ascii")


def _send(port: int, parcel: Parcel) -> Sent:
    body = parcel.body
    with _connected(port) as connection, body.path.open("rb") as file:
        began = time.perf_counter()
        # Who refuses early closes the connection: what it said before is read below all the same.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(parcel.opening + body.head)
            end = os.fstat(file.fileno()).st_size
            held_back = max(body.offset, end - LAST_BYTES) if parcel.pause else end
            _send_range(connection, file.fileno(), body.offset, held_back)
            time.sleep(parcel.pause)
            _send_range(connection, file.fileno(), held_back, end)
            if parcel.expected is None:
                _end_sending(connection)
        last_byte = time.perf_counter()
        answer = _answer(connection)
        answered = time.perf_counter()
    if _status(answer) != parcel.expected:
        told = answer.rpartition(b"\r\n")[2].decode("utf-8", "replace")[:300] or "nothing more was said"
        raise BenchError(f"bench: status {parcel.expected} expected for an upload, found {_status(answer)}: {told}")
    return Sent(began, last_byte, answered)


def _connected(port: int) -> socket.socket:
    try:
        return socket.create_connection((HOST, port), ANSWER_SECONDS)
    except OSError as error:
        raise BenchError(
            f"bench: {HOST}:{port} takes no connection ({error.strerror}); did its process end?"
        ) from error


def _send_range(connection: socket.socket, file: int, start: int, stop: int) -> None:
    """Blocking sendfile of bytes [start, stop); the socket's timeout makes it non-blocking underneath."""
    connection.setblocking(True)
    while start < stop:
        start += os.sendfile(connection.fileno(), file, start, stop - start)
    connection.settimeout(ANSWER_SECONDS)


def _end_sending(connection: socket.socket) -> None:
    """Say that nothing more comes, if there is still somebody to hear it."""
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
