"""What a web page could make a person's browser do to this server."""

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

# What proxies add, in lower case. One that only passes bytes on adds nothing: administrators show who they are anyway.
FORWARDING = ("forwarded", "via", "x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip")
FORWARDING_PREFIX = "x-forwarded-"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def cross_site(request: Request) -> bool:
    """Whether a browser sends this, which changes something, from another site's page (CSRF)."""
    origin = request.headers.get("Origin")
    if origin is None or request.method in SAFE_METHODS:
        return False
    return _host_of(origin) != request.headers.get("Host", "").lower()


def not_local(request: Request) -> str | None:
    """How a request to a server on loopback shows that no program of this machine sent it; None: it does not.

    A proxy says that it forwards; a page whose name was made to mean this machine (DNS rebinding) has it as Host.
    An address as Host can't be such a page's: an emulated phone reaches its host's loopback as 10.0.2.2.
    """
    for name in request.headers:
        if name in FORWARDING or name.startswith(FORWARDING_PREFIX):
            return f"{name}: a request of this machine expected, found one that a proxy forwards"
    host = request.headers.get("Host", "localhost")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if name != "localhost" and not _is_address(name):
        return f"Host: localhost or an address expected, found {host[:80]!r}"
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
