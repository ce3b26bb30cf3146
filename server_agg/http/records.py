"""Records as bodies: of a request, read strictly, and of an answer."""

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from phonograd.device_runtime.base.documents import FieldError, parse, read
from phonograd.server_agg.refusals import RequestError

MAX_BODY_BYTES = 4096

S = TypeVar("S", bound=msgspec.Struct)


class RecordResponse(JSONResponse):
    """An answer whose body is a record as JSON."""

    def render(self, content: Any) -> bytes:
        """The body. Raises ValueError for a number that JSON does not have."""
        return super().render(msgspec.to_builtins(content))


async def record_in(request: Request, kind: type[S]) -> S:
    """The body as `kind`; no body stands for an object without fields.

    Raises RequestError: 413 for more than MAX_BODY_BYTES, 400 for what is no JSON or does not fit, naming the field.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(413, f"a body of at most {MAX_BODY_BYTES} bytes expected, found more")
    try:
        return read(kind, parse(bytes(body) or b"{}"))
    except FieldError as error:
        raise RequestError(400, f"the body: {error}; see {kind.__name__} in /openapi.json") from error
