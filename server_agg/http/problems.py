"""Errors as application/problem+json (RFC 9457): one line for the phone, one line in the log, never a traceback."""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ExceptionHandler

from phonograd.device_runtime.base.errors import PhonogradError, StorageError
from phonograd.device_runtime.client.protocol import TUS_VERSION
from phonograd.server_agg.http import tus
from phonograd.server_agg.http.requests import RecordResponse
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.log_format import event
from phonograd.server_agg.refusals import RefusalError, RequestError, RetryLaterError, UploadInterruptedError, one_line
from phonograd.server_agg.shortages import RETRY_SECONDS, noted_shortage, shortage_in

log = logging.getLogger(__name__)


PROBLEM = "application/problem+json"
WHAT_IS_HERE = "see /openapi.json for what this server answers"


class Problem(msgspec.Struct, frozen=True):
    """RFC 9457: what went wrong, for a program and, as detail, for a person."""

    type: str
    title: str
    status: int
    detail: str


class ProblemResponse(RecordResponse):
    """An answer that is a problem document."""

    media_type = PROBLEM

    def __init__(self, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None):
        super().__init__(Problem("about:blank", title, status, detail), status, headers)


def problem_of(error: Exception) -> ProblemResponse:
    """The problem document of an error; a class without a status of its own is the server's fault: 500."""
    if isinstance(error, RequestError):
        return ProblemResponse(error.status, _phrase(error.status), one_line(error), error.headers)
    if isinstance(error, RefusalError):
        headers = {"Retry-After": str(math.ceil(error.retry_seconds))} if isinstance(error, RetryLaterError) else None
        return ProblemResponse(error.status, error.title, one_line(error), headers)
    if (short := noted_shortage(error)) is not None:
        told = f"it has no more {short} at the moment; send again later"
        return ProblemResponse(503, "The server is at its limit", told, {"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, StorageError):  # its message names our folders, and the log has it
        return ProblemResponse(507, "The server cannot store it", "its disk refuses; send again later")
    if isinstance(error, UploadInterruptedError):  # for the log; nobody is there to read it
        return ProblemResponse(400, "The connection was interrupted", one_line(error))
    return ProblemResponse(500, "The server failed", "see the server's log")


def _phrase(status: int) -> str:
    return "Checksum Mismatch" if status == tus.CHECKSUM_MISMATCH else HTTPStatus(status).phrase


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, PhonogradError)
    problem = problem_of(error)
    short = problem.status_code == 503 and not isinstance(error, RequestError)
    log.log(
        logging.DEBUG if short else logging.WARNING,  # a shortage is told once for all
        "%s %r: %d: %s", request.method, request.url.path, problem.status_code, one_line(error),
        extra=event(
            "request_refused", method=request.method, status=problem.status_code, reason=type(error).__name__,
            phone=wire_of(request.scope).phone,
        ),
    )  # fmt: skip
    return _as_tus(request, problem)


async def of_system(request: Request, error: Exception) -> Response:
    """The answer to an error of the system's, or of a disk or a ledger that lacks something. Raises what is a bug."""
    if shortage_in(error) is None and not isinstance(error, PhonogradError):
        raise error
    return _as_tus(request, problem_of(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    log.warning(
        "%s %r: %d", request.method, request.url.path, status,
        extra=event("request_refused", method=request.method, status=status, reason=HTTPStatus(status).phrase),
    )  # fmt: skip
    headers = dict(error.headers or {})
    if status == 405:
        headers["Allow"] = ", ".join(sorted(_methods_of(request)))
    detail = one_line(f"{request.method} {request.url.path}: {WHAT_IS_HERE}")
    return _as_tus(request, ProblemResponse(status, HTTPStatus(status).phrase, detail, headers))


def _methods_of(request: Request) -> set[str]:
    """Return all methods of the request's path: several routes may have it, and the router names but one's."""
    fitting = (route for route in request.app.routes if isinstance(route, Route))
    return {
        method for route in fitting if route.matches(request.scope)[0] != Match.NONE for method in route.methods or ()
    }


def _as_tus(request: Request, problem: ProblemResponse) -> ProblemResponse:
    """The protocol wants its version in every answer."""
    if request.url.path.startswith("/v1/uploads"):
        problem.headers["Tus-Resumable"] = TUS_VERSION
    return problem


async def _bug(request: Request, error: Exception) -> Response:
    del request, error  # starlette raises it again after answering, and uvicorn logs it with its traceback
    return ProblemResponse(500, "The server failed", "see the server's log")


HANDLERS: Mapping[type[Exception], ExceptionHandler] = {
    PhonogradError: _ours,
    MemoryError: of_system,
    OSError: of_system,
    RuntimeError: of_system,
    HTTPException: _http,
    Exception: _bug,
}
