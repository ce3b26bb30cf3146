"""The token in a request's Authorization header."""

import base64
import binascii

from starlette.datastructures import Headers

MAX_HEADER_CHARACTERS = 512


def offered_token(headers: Headers) -> str | None:
    """The token a request shows; None if it shows none, "" if it is malformed.

    `Bearer TOKEN` (RFC 6750), or `Basic`, as browsers ask people for it: any user name, the token as password.
    """
    values = headers.getlist("Authorization")
    if not values:
        return None
    if len(values) > 1 or len(values[0]) > MAX_HEADER_CHARACTERS:
        return ""
    scheme, _, text = values[0].partition(" ")
    if scheme.lower() == "bearer":
        return text.strip()
    if scheme.lower() == "basic":
        return _password(text.strip())
    return ""


def _password(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("ascii").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
