"""What stands behind the question mark of a URL."""

from starlette.requests import Request

from server_agg.refusals import RequestError


def whole_number(request: Request, name: str, default: int) -> int:
    """`?name=`, a whole number of at most 9 digits; `default` if it is not there. Raises RequestError (400)."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RequestError(400, f"?{name}= a whole number of at most 9 digits expected, found {text[:40]!r}")
    return int(text)
