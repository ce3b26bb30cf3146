"""HTTP connections to the aggregation server: credentials, retries, and errors as PhonogradErrors."""

import contextlib
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec

from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError, UsageError
from phonograd.device_runtime.client.protocol import TOKEN, TOKEN_RULE, is_loopback

# Limit of an answer held in memory: a report of many thousand rounds is smaller.
MAX_ANSWER_BYTES = 1 << 26
# The smallest pieces of an update: no proxy takes less at once.
MIN_PIECE_BYTES = 1 << 16
# Some stores tell how an object once came to them.
NO_CODINGS = ("", "identity", "aws-chunked")
# Seconds. Reading may take long: the server answers a round's last update after it has written the averaged model.
TIMEOUT = httpx.Timeout(connect=10.0, read=120.0, write=60.0, pool=10.0)


@dataclass(frozen=True)
class RetryPolicy:
    """Rule for retries after the connection breaks, with exponential backoff.

    attempts: requests in a row without progress before giving up
    first_wait_seconds: wait before the first retry; it doubles each time, up to longest_wait_seconds
    closing_seconds: how long to wait in all for a round that is closing, as the server says
    """

    attempts: int = 6
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 30.0
    closing_seconds: float = 3600.0


class Retries:
    """Counts requests without progress, and waits between them."""

    def __init__(self, policy: RetryPolicy):
        self._policy = policy
        self.reset()

    def reset(self) -> None:
        """Start counting again, after progress."""
        self._failures, self._wait = 0, self._policy.first_wait_seconds

    def wait(self) -> bool:
        """Wait before the next request, after one that failed; False, at once, if there are no attempts left."""
        self._failures += 1
        if self._failures >= self._policy.attempts:
            return False
        time.sleep(self._wait)
        self._wait = min(2 * self._wait, self._policy.longest_wait_seconds)
        return True


class Closing:
    """Waits for a round that is closing, as long as `policy` allows in all."""

    def __init__(self, policy: RetryPolicy):
        self._left = policy.closing_seconds

    def wait(self, seconds: float) -> bool:
        """Wait as long as the server says; False, at once, if that is longer than is left."""
        if seconds > self._left:
            return False
        self._left -= seconds
        time.sleep(seconds)
        return True

    def wait_after(self, error: ServerRefusedError) -> bool:
        """The same after a refusal; False, at once, if it was for another reason."""
        return error.status == 503 and error.retry_seconds is not None and self.wait(error.retry_seconds)


@dataclass(frozen=True)
class Connection:
    """A server's address and the caller's credentials.

    url: such as http://127.0.0.1:8080.
    token: the phone's or administrator's, shown by `phonograd tokens add`; None for a server without authentication.
    ca_cert: PEM file of the one certificate authority to trust instead of the system's.
    token_over_http: allow sending the token unencrypted to another machine; anyone in between can read it.
    piece_size: bytes of an update to send at once, for a proxy that takes no more; None is all, less after a refusal.

    models_from: where else the server may send for a model, such as https://store.example:9000. A server with https may
    send to https anywhere.

    Raises UsageError for an invalid URL, token or size, and if the token would leave this machine over plain http.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_cert: Path | None = None
    token_over_http: bool = False
    piece_size: int | None = None
    models_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        url, *_ = map(_parse_url, (self.url, *self.models_from))
        if self.piece_size is not None and self.piece_size < MIN_PIECE_BYTES:
            raise UsageError(f"`piece_size`: at least {MIN_PIECE_BYTES} bytes expected, found {self.piece_size}")
        if self.token is None:
            return
        if not TOKEN.match(self.token):  # the message does not show it: it may still be a secret
            raise UsageError(
                f"token: {TOKEN_RULE} expected, found {len(self.token)} other characters; "
                "copy the one that `phonograd tokens add` showed"
            )
        if url.scheme == "http" and not is_loopback(url.host) and not self.token_over_http:
            raise UsageError(
                f"server {self.url}: http:// would send the token unencrypted; use https://, or allow it with "
                "`token_over_http`"
            )

    def __str__(self) -> str:
        return self.url


def _parse_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise UsageError(f"server {text!r}: not a URL ({error}); expected http://HOST:PORT or https://HOST") from error
    if url.scheme in ("http", "https") and url.host:
        return url
    meant = f"; did you mean http://{text}?" if "://" not in text and text else ""
    raise UsageError(f"server {text!r}: a URL such as http://127.0.0.1:8080 expected{meant}")


# A URL alone means a server without authentication.
Server = Connection | str


def elsewhere_of(server: Server, url: str) -> Connection:
    """The host of a URL that `server` told, to be asked without a token; its URL is without what signs the request.

    Raises ServerRefusedError for no URL, and for a place that nobody named: on http, anyone in between may tell one.
    """
    ours = Connection(server) if isinstance(server, str) else server
    try:
        there = _parse_url(url)
    except UsageError:
        raise ServerRefusedError(f"{ours}: the URL of its model expected, found {url[:80]!r}") from None
    named = [_origin(httpx.URL(known)) for known in (ours.url, *ours.models_from)]
    if _origin(there) not in named and not (there.scheme == httpx.URL(ours.url).scheme == "https"):
        found = f"{there.scheme}://{there.netloc.decode()}"
        raise ServerRefusedError(
            f"{ours}: its model from there, or over https like its own, expected, found {found[:80]!r}; if that is its "
            "store, allow it with `models_from`"
        )
    return Connection(str(there.copy_with(raw_path=b"/", fragment=None)), ca_cert=ours.ca_cert)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@contextlib.contextmanager
def http_client(server: Server, saving: bool = False) -> Iterator[httpx.Client]:
    """An HTTP client for `server`. Raises ServerUnreachableError for connection errors.

    saving: the caller takes a body to disk, and bounds it; all other answers have at most MAX_ANSWER_BYTES.
    """
    connection = Connection(server) if isinstance(server, str) else server
    next_step = "check the URL and that `phonograd serve` runs there"
    url = httpx.URL(connection.url)
    try:
        with httpx.Client(
            base_url=url,
            timeout=TIMEOUT,
            headers={"Accept-Encoding": "identity"}  # a few bytes of gzip are any number of bytes
            | ({"Authorization": f"Bearer {connection.token}"} if connection.token else {}),
            # Loading the system's authorities takes time, and http does not need them.
            verify=url.scheme == "https" and _trust(connection.ca_cert),
            # A proxy from the environment can't reach this machine's loopback.
            trust_env=not is_loopback(url.host),
            event_hooks={"response": [_check_reached, lambda response: _check_body(server, response, saving)]},
        ) as client:
            yield client
    except httpx.TimeoutException as error:
        raise ServerUnreachableError(f"{server}: no answer in time ({type(error).__name__}); {next_step}") from error
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            next_step = "check the server's name in the URL; trust a private authority with `ca_cert`"
        raise ServerUnreachableError(f"{server}: cannot be reached: {reason}; {next_step}") from error


def _check_reached(response: httpx.Response) -> None:
    """A proxy whose server is gone, or does not answer, is no answer: as if the connection broke."""
    if response.status_code in (502, 504):
        raise httpx.RemoteProtocolError(f"a proxy answers {response.status_code} {response.reason_phrase}")


def _check_body(server: Server, response: httpx.Response, saving: bool) -> None:
    """Refuse a coded body, and bound it. Raises ServerRefusedError, also while it is read."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    if coding not in NO_CODINGS:
        raise ServerRefusedError(
            f"{server}: an answer without Content-Encoding expected, as was asked, found {coding[:20]!r}; does a proxy "
            "compress? turn that off there"
        )
    if not (saving and response.status_code in (200, 206)):
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Bounded(server, response.stream)


class _Bounded(httpx.SyncByteStream):
    """A body that is held in memory. Raises ServerRefusedError for one of more than MAX_ANSWER_BYTES."""

    def __init__(self, server: Server, body: httpx.SyncByteStream):
        self._server, self._body = server, body

    def __iter__(self) -> Iterator[bytes]:
        return limit_pieces(self._server, self._body, MAX_ANSWER_BYTES)

    def close(self) -> None:
        self._body.close()


def limit_pieces(server: Server, pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The pieces of a body of at most so many bytes. Raises ServerRefusedError for the first piece with more."""
    left = most
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise ServerRefusedError(
                f"{server}: at most {most} bytes expected, more are coming; is it phonograd serve?"
            )
        yield piece


def _trust(ca_cert: Path | None) -> ssl.SSLContext | bool:
    if ca_cert is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_cert)
    except ssl.SSLError as error:
        raise UsageError(f"{ca_cert}: not a PEM file of certificates: {error.reason or error}") from error
    except OSError as error:
        raise UsageError(f"{ca_cert}: cannot be read: {error.strerror}; expected a PEM file of certificates") from error


def json_object(server: Server, response: httpx.Response, status: int) -> dict[str, Any]:
    """The JSON object of a response with `status`. Raises ServerRefusedError for any other response."""
    if response.status_code != status:
        raise refusal(server, response)
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


def refusal(server: Server, response: httpx.Response) -> ServerRefusedError:
    """The error for a response with a problem document."""
    problem: Mapping[str, Any] = _json(response) or {}
    title = str(problem.get("title", response.reason_phrase))[:200]
    detail = str(problem.get("detail", "no explanation given; is it phonograd serve?"))[:1000]
    if response.status_code == httpx.codes.UNAUTHORIZED:
        detail += "; give it as `token`"
    error = ServerRefusedError(f"{server}: refused ({response.status_code} {title}): {detail}")
    error.status = response.status_code
    after = response.headers.get("Retry-After", "")
    error.retry_seconds = float(after) if after.isascii() and after.isdigit() else None
    return error


@contextlib.contextmanager
def expected_fields(server: Server) -> Iterator[None]:
    """Raise ServerRefusedError if the code in the block fails on a missing or wrong field of a response."""
    try:
        yield
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ServerRefusedError(
            f"{server}: a field of its answer is missing or wrong ({error!r}); is it phonograd serve, this version?"
        ) from error
