"""The aggregation server as a phone, or whoever stands in for one, talks to it.

Models and updates go from and to disk in pieces, with their hashes checked. Every function raises
ServerRefusedError if the server says no and ServerUnreachableError if it does not answer or the connection breaks off.
"""

import base64
import contextlib
import hashlib
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from device_runtime.errors import ServerRefusedError, ServerUnreachableError, UpdateError, UsageError, WeightsError
from device_runtime.files import HASH_CHUNK_BYTES, atomic_file, sha256_of_file
from device_runtime.server_protocol import PHONE_HEADER, PHONE_NAME, PHONE_NAME_RULE, TOKEN, TOKEN_RULE, is_loopback

# Seconds. Reading is long: the last update of a round is answered when the averaged model is on the server's disk.
TIMEOUT = httpx.Timeout(connect=10.0, read=120.0, write=60.0, pool=10.0)
SEND_BYTES = 1 << 18
ETAG = re.compile(r'(?:W/)?"([0-9a-f]{64})"\Z')

# Called with bytes sent so far and bytes in all.
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Connection:
    """How to reach a server and who is asking.

    url: such as http://127.0.0.1:8080.
    token: this phone's (or administrator's), shown by `phonograd phones add`; None for a server that asks for none.
    ca_cert: PEM file of the one authority trusted instead of the system's.
    token_over_http: send the token unencrypted to another machine, where anyone on the way can read it.

    Raises UsageError for a token that is none, and for one that would leave this machine over plain http.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_cert: Path | None = None
    token_over_http: bool = False

    def __post_init__(self) -> None:
        if self.token is None:
            return
        if not TOKEN.match(self.token):  # which is not shown: it may be a secret all the same
            raise UsageError(
                f"token: {TOKEN_RULE} expected, found {len(self.token)} other characters; "
                "copy the one that `phonograd phones add` showed"
            )
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL:
            return  # said when it is used
        if url.scheme == "http" and not is_loopback(url.host) and not self.token_over_http:
            raise UsageError(
                f"server {self.url}: anyone on the way could read the token; use https://, or say --token-over-http"
            )

    def __str__(self) -> str:
        return self.url


# What every function takes: a URL alone is a server that asks for no token.
Server = Connection | str


@dataclass(frozen=True)
class CurrentRound:
    """The open round: its number, its base model (hex SHA-256, size in bytes) and how full it is."""

    round: int
    base_sha256: str
    model_bytes: int
    clients_per_round: int
    accepted: int
    codecs: tuple[str, ...]


@dataclass(frozen=True)
class DownloadedModel:
    """A model on disk: hex SHA-256 and size in bytes.

    `changed` is false if the known model was still the one asked for; then nothing was written and `nbytes` is 0.
    """

    sha256: str
    nbytes: int
    changed: bool


@dataclass(frozen=True)
class UploadReceipt:
    """The server's answer to an update.

    `bytes`: body bytes received; `accepted`: updates the round has by now; `model_sha256`: its result, once it closed.
    """

    round: int
    phone: str
    accepted: int
    clients_per_round: int
    round_closed: bool
    model_sha256: str | None
    bytes: int


def ask(
    server: Server, method: str, path: str, document: Mapping[str, Any] | None = None, status: int = 200
) -> dict[str, Any]:
    """Send a request, with a JSON body or none, that is answered with `status` and a JSON object: the object."""
    with _talking_to(server) as client:
        return _document(server, client.request(method, path, json=document), status)


def current_round(server: Server) -> CurrentRound:
    """The round that is open at `server`."""
    document = ask(server, "GET", "/v1/round")
    with _expected_fields(server):
        return CurrentRound(
            round=int(document["round"]),
            base_sha256=str(document["base_sha256"]),
            model_bytes=int(document["model_bytes"]),
            clients_per_round=int(document["clients_per_round"]),
            accepted=int(document["accepted"]),
            codecs=tuple(map(str, document["codecs"])),
        )


def download_model(
    server: Server, path: Path, known_sha256: str | None = None, *, sha256: str | None = None, phone: str | None = None
) -> DownloadedModel:
    """Fetch model `sha256`, or the current one, to `path`: atomically, and not at all if it is `known_sha256`.

    `phone` is a name for the server's ledger. Raises WeightsError if the bytes are not those the server announced,
    StorageError when the disk refuses; then `path` is as before.
    """
    headers = {"If-None-Match": f'"{known_sha256}"'} if known_sha256 else {}
    if phone is not None:
        headers[PHONE_HEADER] = phone
    url = f"/v1/models/{sha256}" if sha256 else "/v1/model"
    with _talking_to(server) as client, client.stream("GET", url, headers=headers) as response:
        if response.status_code == 304 and known_sha256:
            return DownloadedModel(known_sha256, 0, changed=False)
        if response.status_code != 200:
            response.read()
            raise _refusal(server, response)
        tag = ETAG.match(response.headers.get("ETag", ""))
        if tag is None or sha256 not in (None, tag[1]):
            raise ServerRefusedError(
                f"{server}: a model's hash expected as ETag, found another; is it phonograd serve?"
            )
        return DownloadedModel(tag[1], _save(server, response, path, tag[1]), changed=True)


def upload_update(server: Server, path: Path, phone: str, progress: Progress | None = None) -> UploadReceipt:
    """Send the update at `path` in the name of `phone` (see PHONE_NAME), streamed from disk.

    Sending the same update again is safe: the server counts it once and gives the receipt again. Raises UpdateError if
    the file can't be read or `phone` is not a name.
    """
    if not PHONE_NAME.match(phone):
        raise UpdateError(f"phone name {phone!r}: {PHONE_NAME_RULE} expected; choose another")
    try:
        nbytes = path.stat().st_size
        digest = base64.b64encode(bytes.fromhex(sha256_of_file(path))).decode()
    except OSError as error:
        raise UpdateError(f"{path}: cannot be read: {error.strerror}; expected an update that train wrote") from error
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(nbytes),
        "Content-Digest": f"sha-256=:{digest}:",
        PHONE_HEADER: phone,
    }
    with _talking_to(server) as client:
        response = client.post("/v1/updates", content=_pieces(path, nbytes, progress), headers=headers)
    document = _document(server, response, 201)
    with _expected_fields(server):
        return UploadReceipt(
            round=int(document["round"]),
            phone=str(document["phone"]),
            accepted=int(document["accepted"]),
            clients_per_round=int(document["clients_per_round"]),
            round_closed=bool(document["round_closed"]),
            model_sha256=document["model_sha256"],
            bytes=int(document["bytes"]),
        )


def report(server: Server) -> dict[str, Any]:
    """The server's report of rounds and bytes, as server_agg.report writes it."""
    return ask(server, "GET", "/v1/report")


def _pieces(path: Path, nbytes: int, progress: Progress | None) -> Iterator[bytes]:
    sent = 0
    with path.open("rb") as file:
        while piece := file.read(SEND_BYTES):
            yield piece
            sent += len(piece)
            if progress is not None:
                progress(sent, nbytes)


def _save(server: Server, response: httpx.Response, path: Path, sha256: str) -> int:
    digest = hashlib.sha256()
    nbytes = 0
    with atomic_file(path) as file:
        for piece in response.iter_bytes(HASH_CHUNK_BYTES):
            digest.update(piece)
            file.write(piece)
            nbytes += len(piece)
        if digest.hexdigest() != sha256:
            raise WeightsError(
                f"model from {server}: SHA-256 {sha256[:12]}… expected, the {nbytes} bytes received have "
                f"{digest.hexdigest()[:12]}…; fetch it again"
            )
    return nbytes


@contextlib.contextmanager
def _talking_to(server: Server) -> Iterator[httpx.Client]:
    """A client for `server`, whose failures to reach it come out as ServerUnreachableError."""
    connection = Connection(server) if isinstance(server, str) else server
    next_step = "check the URL and that `phonograd serve` runs there"
    try:
        url = httpx.URL(connection.url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ServerUnreachableError(f"server {connection.url!r}: a URL such as http://127.0.0.1:8080 expected")
        with httpx.Client(
            base_url=url,
            timeout=TIMEOUT,
            headers={"Authorization": f"Bearer {connection.token}"} if connection.token else None,
            verify=_trust(connection.ca_cert),
            # A proxy named in the environment can't reach this machine's loopback.
            trust_env=not is_loopback(url.host),
        ) as client:
            yield client
    except httpx.InvalidURL as error:
        raise ServerUnreachableError(
            f"server {connection.url!r}: not a URL ({error}); expected http://HOST:PORT"
        ) from error
    except httpx.TimeoutException as error:
        raise ServerUnreachableError(f"{server}: no answer in time ({type(error).__name__}); {next_step}") from error
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            next_step = "check the server's name in the URL; trust a private authority with --ca-cert"
        raise ServerUnreachableError(f"{server}: cannot be reached: {reason}; {next_step}") from error


def _trust(ca_cert: Path | None) -> ssl.SSLContext | bool:
    if ca_cert is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_cert)
    except ssl.SSLError as error:
        raise UsageError(f"{ca_cert}: not a PEM file of certificates: {error.reason or error}") from error
    except OSError as error:
        raise UsageError(f"{ca_cert}: cannot be read: {error.strerror}; expected a PEM file of certificates") from error


def _document(server: Server, response: httpx.Response, status: int) -> dict[str, Any]:
    if response.status_code != status:
        raise _refusal(server, response)
    document = _json(response)
    if document is None:
        raise ServerRefusedError(f"{server}: a JSON object expected, found something else; is it phonograd serve?")
    return document


def _json(response: httpx.Response) -> dict[str, Any] | None:
    try:
        document = response.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _refusal(server: Server, response: httpx.Response) -> ServerRefusedError:
    problem: Mapping[str, Any] = _json(response) or {}
    title = str(problem.get("title", response.reason_phrase))[:200]
    detail = str(problem.get("detail", "no explanation given; is it phonograd serve?"))[:1000]
    return ServerRefusedError(f"{server}: refused ({response.status_code} {title}): {detail}")


@contextlib.contextmanager
def _expected_fields(server: Server) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ServerRefusedError(
            f"{server}: its answer lacks a field or holds a wrong one ({error!r}); is it phonograd serve, this version?"
        ) from error
