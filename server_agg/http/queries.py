"""What stands behind the question mark of a URL."""

from starlette.requests import Request

from phonograd.server_agg.refusals import RequestError


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
