"""Whoever started the server: an administrator for as long as it runs, without being enrolled.

The server prints a link and writes a file (device_runtime/client/owner_file.py), both with the same token. A browser
that opens the link gets a cookie for it, whose value is another secret: a browser sends a cookie to every port of a
host.
"""

import hmac
import secrets

from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.client.owner_file import operator_name
from phonograd.server_agg.security.registry import Principal
from phonograd.server_agg.security.tokens import NewToken, offered_token

LINK_PATH = "/admin"
LINK_KEY = "key"


class Owner:
    """The owner of one run, with the run's secrets."""

    def __init__(self) -> None:
        self.token = NewToken.make().text
        self.principal = Principal(operator_name(), "admin")
        self._cookie = secrets.token_hex(32)

    @property
    def link(self) -> str:
        """The admin link after the server's URL."""
        return f"{LINK_PATH}?{LINK_KEY}={self.token}"

    def has_key(self, text: str) -> bool:
        """Return whether `text` is the token; in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())

    def asks(self, request: Request) -> bool:
        """Return whether the request shows the owner's token or, without any token, the owner's cookie."""
        token = offered_token(request.headers)
        if token is not None:
            return self.has_key(token)
        cookie = request.cookies.get(_cookie_name(request), "")
        return hmac.compare_digest(cookie.encode("utf-8", "replace"), self._cookie.encode())

    def give_cookie(self, request: Request, response: Response) -> None:
        """Have the browser keep the cookie until it is closed, and send it from this site's pages alone."""
        response.set_cookie(
            _cookie_name(request), self._cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )


def _cookie_name(request: Request) -> str:
    """A browser has one jar for all ports of a host; each server its cookie."""
    server = request.scope.get("server")
    return f"phonograd_admin_{server[1] if server else 0}"
