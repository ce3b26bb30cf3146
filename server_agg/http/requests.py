"""Reading of requests, and records as bodies of requests and answers."""

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from phonograd.device_runtime.base.documents import FieldError, parse, read
from phonograd.device_runtime.client.protocol import PHONE_HEADER, PHONE_NAME, PHONE_NAME_RULE
from phonograd.server_agg.http.operations import Parameter, WholeNumber
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.storage.tables import TrafficKind

MAX_BODY_BYTES = 4096

S = TypeVar("S", bound=msgspec.Struct)


def phone_of(request: Request) -> str | None:
    """The phone's name from its token or its header; None if neither names one."""
    principal = request.scope["state"].get("principal")
    if principal is not None:
        return str(principal.name)
    return request.headers.get(PHONE_HEADER)


def note_phone(request: Request, kind: TrafficKind) -> str:
    """Tell the wire counter what a request is for, and whose; the phone's name, "" if it has none."""
    wire = wire_of(request.scope)
    wire.kind, name = kind, phone_of(request)
    wire.phone = name if name is not None and PHONE_NAME.match(name) else ""
    return wire.phone


def checked_name(phone: str | None) -> str:
    """The name of a phone that gave one. Raises RequestError (400)."""
    if phone is None or not PHONE_NAME.match(phone):
        raise RequestError(400, f"{PHONE_HEADER}: {PHONE_NAME_RULE} expected, found {(phone or '')[:80]!r}")
    return phone


def in_query(name: str, description: str, default: int | None = None, required: bool = False) -> Parameter:
    """A whole number of at most 9 digits in the query; see `whole_number`."""
    return Parameter("query", name, WholeNumber, description, required, default)


def whole_number(request: Request, parameter: Parameter) -> int:
    """The value of `?name=`, or the parameter's default. Raises RequestError (400)."""
    if parameter.name not in request.query_params and parameter.default is not None:
        return parameter.default
    text = request.query_params.get(parameter.name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RequestError(400, f"?{parameter.name}= a whole number of at most 9 digits expected, found {text[:40]!r}")
    return int(text)


class RecordResponse(JSONResponse):
    """An answer whose body is a record as JSON."""

    def render(self, content: Any) -> bytes:
        """The body. Raises ValueError for a number that JSON does not have."""
        return super().render(msgspec.to_builtins(content))


async def record_in(request: Request, kind: type[S], most: int = MAX_BODY_BYTES) -> S:
    """The body as `kind`; no body stands for an object without fields.

    Raises RequestError: 413 for more than `most` bytes, 400 for what is no JSON or does not fit, naming the field.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise RequestError(413, f"a body of at most {most} bytes expected, found more")
    try:
        return read(kind, parse(bytes(body) or b"{}"))
    except FieldError as error:
        raise RequestError(400, f"the body: {error}; see {kind.__name__} in /openapi.json") from error
