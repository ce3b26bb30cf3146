"""What a request says: which phone it is of, the numbers in its URL, a small body."""

from starlette.requests import Request

from phonograd.device_runtime.client.protocol import PHONE_HEADER, PHONE_NAME, PHONE_NAME_RULE
from phonograd.server_agg.refusals import RequestError

MAX_BODY_BYTES = 4096


def phone_of(request: Request) -> str | None:
    """The phone's name as its token or its header has it; None where neither does."""
    principal = request.scope["state"].get("principal")
    if principal is not None:
        return str(principal.name)
    return request.headers.get(PHONE_HEADER)


def checked_name(phone: str | None) -> str:
    """The name of a phone that gave one. Raises RequestError (400)."""
    if phone is None or not PHONE_NAME.match(phone):
        raise RequestError(400, f"{PHONE_HEADER}: {PHONE_NAME_RULE} expected, found {(phone or '')[:80]!r}")
    return phone


def whole_number(request: Request, name: str, default: int | None = None) -> int:
    """`?name=`, a whole number of at most 9 digits; if it is not there, `default`, unless that is None.

    Raises RequestError (400).
    """
    if name not in request.query_params and default is not None:
        return default
    text = request.query_params.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RequestError(400, f"?{name}= a whole number of at most 9 digits expected, found {text[:40]!r}")
    return int(text)


async def small_body(request: Request) -> bytes:
    """The body, of MAX_BODY_BYTES at most. Raises RequestError (413)."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(413, f"a body of at most {MAX_BODY_BYTES} bytes expected, found more")
    return bytes(body)
