"""The guard: middleware that every request passes before the application sees it.

In this order: sizes, who is asking, how often, whether a browser was talked into it, whether they may. What is refused
is answered with a problem document without its body being read, and goes to the audit log.
"""

import ipaddress
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.client.protocol import PHONE_HEADER, is_loopback
from phonograd.server_agg.http.operations import Access, Operation
from phonograd.server_agg.http.problems import WHAT_IS_HERE, of_system, problem_of
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.rate_limits import ConcurrencyLimit, TokenBuckets, address_key
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.security.registry import PhoneRegistry, Principal, Rejected
from phonograd.server_agg.security.tokens import offered_token
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.audit import AuditLog

MAX_BUCKETS = 10_000  # of some 300 bytes each
MAX_PATHS = 1000
BUSY_SECONDS = 1.0  # when to come again if too many requests are open

REASONS: Mapping[str, str] = {
    "unknown": "the token is not one of this server's",
    "expired": "the token has expired",
    "revoked": "the token was revoked",
}


# What proxies add, in lower case. One that only passes bytes on adds nothing: administrators show who they are anyway.
FORWARDING = ("forwarded", "via", "x-real-ip", "x-client-ip", "cf-connecting-ip", "true-client-ip")
FORWARDING_PREFIX = "x-forwarded-"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_STRICTNESS: Mapping[Access, int] = {"open": 0, "phone": 1, "admin": 2}


class Roles:
    """The access that the paths of `operations` need: all methods of a path need what the strictest of them needs.

    A path without an operation is closed, so that none is open by mistake.
    """

    def __init__(self, operations: Iterable[Operation]):
        declared = {(one.path, one.access) for one in operations}
        self._patterns = [(compile_path(path)[0], access) for path, access in declared]

    def access_of(self, path: str) -> Access | None:
        """Return the access that `path` needs, decoded as the router sees it: the strictest of all declared matches.

        None for an unknown one.
        """
        fitting = [access for pattern, access in self._patterns if pattern.match(path)]
        return max(fitting, key=lambda access: _STRICTNESS[access], default=None)


@dataclass(frozen=True)
class Visitor:
    """Who is asking: `principal` with a valid token, else `rejected` says what is wrong with the token."""

    address: str
    principal: Principal | None = None
    rejected: Rejected | None = None

    @property
    def actor(self) -> str:
        """The name the audit log gives them, and what their requests are counted under."""
        return self.principal.name if self.principal else f"address:{address_key(self.address)}"


class Guard:
    """ASGI middleware in front of `app`, for a server that listens on `host`.

    `roles`: who may use each path. With a valid token, or the cookie of `owner`, `request.state.principal` is whose
    it is; None where none is asked for. `request.state.actor` is the asker's name for the audit log. `clock`: seconds,
    monotonic.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: SecuritySettings,
        host: str,
        roles: Roles,
        owner: Owner,
        registry: PhoneRegistry,
        audit: AuditLog,
        pools: ThreadPools,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._app = app
        self._settings = settings
        self._tokens = settings.asks_for_tokens(host)
        self._local = settings.auth == "auto" and not self._tokens
        self._access_of = lru_cache(MAX_PATHS)(roles.access_of)  # it tries the patterns of all paths
        self._owner = owner
        self._registry = registry
        self._audit = audit
        self._pools = pools
        self._buckets = TokenBuckets(settings.requests_per_second, settings.burst, MAX_BUCKETS, clock)
        self._open = ConcurrencyLimit(settings.concurrent_per_phone)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it with a refusal."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        scope["path"] = scope["path"].rstrip("/") or "/"  # tus clients are given endpoints with a slash
        request = Request(scope)
        visitor = Visitor(request.client.host if request.client else "")
        try:
            self._check_sizes(request)
            _check_encoding(request)
            access = self._access_of(request.scope["path"])
            visitor = await self._identify(request, access)
            self._check_rate(visitor)
            self._check_origin(request)
            self._check_access(request, visitor, access)
            self._enter(visitor)
        except RequestError as refusal:
            await self._refuse(request, visitor, refusal, send)
            return
        except (PhonogradError, MemoryError, OSError, RuntimeError) as error:
            await (await of_system(request, error))(scope, receive, send)
            return
        request.state.principal, request.state.actor = visitor.principal, visitor.actor
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave(visitor)

    def _check_sizes(self, request: Request) -> None:
        query = request.scope["query_string"]
        target = len(request.scope.get("raw_path") or b"") + (1 + len(query) if query else 0)
        if target > self._settings.max_target_bytes:
            raise RequestError(
                414, f"a URL of at most {self._settings.max_target_bytes} bytes expected, found {target}"
            )
        head = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
        if head > self._settings.max_header_bytes:
            raise RequestError(
                431, f"headers of at most {self._settings.max_header_bytes} bytes expected, found {head}"
            )

    def _asks(self, access: Access | None) -> bool:
        """Return whether requests to such a path need a token; on loopback only administrators do."""
        return access != "open" and (self._tokens or (self._local and access == "admin"))

    async def _identify(self, request: Request, access: Access | None) -> Visitor:
        address = request.client.host if request.client else ""
        if not self._tokens and not self._asks(access):
            return Visitor(address)
        if self._owner.asks(request):
            return Visitor(address, self._owner.principal)
        token = offered_token(request.headers)
        if token is None:
            return Visitor(address)
        principal = await self._pools.authenticating.run(self._registry.authenticate, token)
        return Visitor(address, principal) if isinstance(principal, Principal) else Visitor(address, rejected=principal)

    def _check_rate(self, visitor: Visitor) -> None:
        if self._is_limited(visitor) and (wait := self._buckets.take(visitor.actor)):
            rate = f"{self._settings.requests_per_second:g} requests a second, {self._settings.burst} at once"
            raise _too_many(f"at most {rate} expected, found more", wait)

    def _check_origin(self, request: Request) -> None:
        if _cross_site(request):
            raise RequestError(
                403, "a page of another site sent this through a browser; only this server's own pages may"
            )
        if self._local and (reason := _not_local(request)):
            raise RequestError(
                403, f"{reason}; a server that is reached from elsewhere must ask for tokens: set `auth` to tokens"
            )

    def _check_access(self, request: Request, visitor: Visitor, access: Access | None) -> None:
        if access is None:
            raise RequestError(404, f"{request.method} {request.scope['path'][:80]}: {WHAT_IS_HERE}")
        if not self._asks(access):
            return
        if visitor.principal is None:
            raise _unauthorized_error(visitor.rejected, access, "text/html" in request.headers.get("Accept", ""))
        if access == "admin" and visitor.principal.role != "admin":
            raise RequestError(403, f"an administrator's token expected, found that of phone {visitor.principal.name}")
        if self._local:
            return  # here tokens name administrators alone; phones say what they are called
        named = request.headers.getlist(PHONE_HEADER)
        if any(name != visitor.principal.name for name in named):
            raise RequestError(
                403, f"{PHONE_HEADER}: {visitor.principal.name}, whose token this is, expected; found another"
            )

    def _enter(self, visitor: Visitor) -> None:
        if self._is_limited(visitor) and not self._open.acquire(visitor.actor):
            limit = self._settings.concurrent_per_phone
            raise _too_many(f"at most {limit} requests at once expected, found one more", BUSY_SECONDS)

    def _leave(self, visitor: Visitor) -> None:
        if self._is_limited(visitor):
            self._open.release(visitor.actor)

    def _is_limited(self, visitor: Visitor) -> bool:
        """Return whether rates limit the visitor: all but programs of this machine, on a server without tokens."""
        return self._tokens or not is_loopback(visitor.address)

    async def _refuse(self, request: Request, visitor: Visitor, refusal: RequestError, send: Send) -> None:
        detail = f"{refusal.status}: {refusal}"
        if visitor.rejected is not None and visitor.rejected.phone is not None:
            detail += f" (phone {visitor.rejected.phone})"
        await self._pools.writing.run(
            self._audit.record_refusal, visitor.actor, request.method, request.scope["path"], detail
        )
        await problem_of(refusal)(request.scope, request.receive, send)


def _too_many(detail: str, wait: float) -> RequestError:
    return RequestError(429, detail, {"Retry-After": str(max(1, math.ceil(wait)))})


def _unauthorized_error(rejected: Rejected | None, access: Access, wants_html: bool) -> RequestError:
    reason = REASONS[rejected.reason] if rejected else "none came"
    challenge = 'Bearer realm="phonograd"'
    if rejected is not None:
        challenge += f', error="invalid_token", error_description="{reason}"'
    if wants_html:  # a browser then asks for it; the user's name does not matter
        challenge = f'Basic realm="phonograd", {challenge}'
    name = (rejected and rejected.phone) or "NAME"
    make = f"phonograd tokens add {name}" + " --role admin" * (access == "admin")
    if rejected is not None and rejected.enrolled:  # `add` would find it there
        make = f"phonograd tokens rotate {name}"
    detail = f"a token expected in Authorization: Bearer, {reason}; the operator makes one: {make}"
    if access == "admin":
        detail = (
            f"an administrator's token expected in Authorization: Bearer, {reason}; open the link that the server "
            f"printed at its start, or make a token: {make} --state DIR"
        )
    return RequestError(401, detail, {"WWW-Authenticate": challenge})


def _check_encoding(request: Request) -> None:
    """Raise RequestError (415) for a compressed body: its bytes would be taken for an update's own."""
    found = request.headers.get("Content-Encoding", "identity")
    if found.lower() != "identity":
        message = f"Content-Encoding: identity expected, found {found[:40]!r}; send the bytes as they are"
        raise RequestError(415, message, {"Accept-Encoding": "identity"})


def _cross_site(request: Request) -> bool:
    """Return whether a browser sends this change from another site's page (CSRF)."""
    origin = request.headers.get("Origin")
    if origin is None or request.method in SAFE_METHODS:
        return False
    return _host_of(origin) != request.headers.get("Host", "").lower()


def _not_local(request: Request) -> str | None:
    """Return how a request to a server on loopback shows that no program of this machine sent it; None: it does not.

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
