"""The administrators' API: phones, their tokens, and the audit log."""

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from phonograd.device_runtime.base.documents import Count, Record, about
from phonograd.device_runtime.client.protocol import PHONE_NAME
from phonograd.server_agg.http.operations import Answer, Body, Header, Parameter, operation, pattern_of
from phonograd.server_agg.http.requests import RecordResponse, in_query, record_in, whole_number
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.security.owner import LINK_KEY, LINK_PATH, Owner
from phonograd.server_agg.security.registry import IssuedToken, PhoneEntry, PhoneRegistry, Principal, Role
from phonograd.server_agg.security.tokens import DEFAULT_LIFETIME, DEFAULT_OVERLAP
from phonograd.server_agg.storage.audit import AuditEntry, AuditLog

MAX_ENTRIES = 1000
SECRET = {"Cache-Control": "no-store"}


NAME = Parameter("path", "name", str, "A phone's name.")
LIMIT = in_query("limit", "The most entries to answer with.", 100)
BEFORE = in_query("before", "Only those with a lower id.")
KEY = Parameter("query", LINK_KEY, str, "The key in the link that the server printed.", required=True)
ISSUED = Answer("Its token, shown this once.", IssuedToken)
# The registry holds names and lifetimes to their rules; here they are for whoever reads /openapi.json.
NAMED = Meta(extra_json_schema={"pattern": pattern_of(PHONE_NAME)})
LIFETIME = Meta(extra_json_schema={"pattern": "^(never|[0-9]{1,8}s|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d)$"})
Lifetime = Annotated[str, LIFETIME, about("Such as 90d, 12h, 30m, 60s, or never; 10 years at most.")]


class NewPhone(Record, frozen=True):
    """A phone or administrator to enrol."""

    name: Annotated[str, NAMED]
    role: Role = "phone"
    expires: Lifetime = DEFAULT_LIFETIME


class NewToken(Record, frozen=True):
    """Validity of a fresh token, and the tokens it replaces."""

    expires: Lifetime = DEFAULT_LIFETIME
    overlap: Annotated[str, LIFETIME, about("How long the old tokens remain valid.")] = DEFAULT_OVERLAP


class Phones(Record, frozen=True):
    """All phones and administrators by name, revoked ones included."""

    phones: tuple[PhoneEntry, ...]


class Revoked(Record, frozen=True):
    """A revoked phone, and how many of its tokens were revoked."""

    name: str
    tokens_revoked: Count


class AuditEntries(Record, frozen=True):
    """Entries of the audit log, newest first."""

    entries: tuple[AuditEntry, ...]


class AdminRoutes:
    """The handlers.

    The guard lets administrators in only, but for /admin, which is the link that the server printed. A server that asks
    nobody can't tell them from others, and whoever came by could make a token for later: there these handlers refuse,
    and `phonograd tokens --state` does it.
    """

    def __init__(self, registry: PhoneRegistry, audit: AuditLog, owner: Owner, pools: ThreadPools):
        self._registry = registry
        self._audit = audit
        self._owner = owner
        self._pools = pools

    @operation(
        f"GET {LINK_PATH}",
        "open",
        {303: Answer("On to the dashboard.", headers=tuple(map(Header, ("Location", "Set-Cookie", "Cache-Control"))))},
        takes=(KEY,),
    )
    async def admit(self, request: Request) -> Response:
        """The admin link: a cookie for its key."""
        if not self._owner.has_key(request.query_params.get(LINK_KEY, "")):
            refusal = "403: not the admin link's key"
            await self._pools.writing.run(
                self._audit.record_refusal, request.state.actor, request.method, LINK_PATH, refusal
            )
            raise RequestError(
                403, "the admin link of this run expected, found another; open the one that the server printed last"
            )
        response = RedirectResponse("/", 303, {**SECRET, "Referrer-Policy": "no-referrer"})
        self._owner.give_cookie(request, response)
        return response

    @operation("GET /v1/phones", "admin", {200: Answer("By name.", Phones)}, refuses=(403,))
    def phones(self, request: Request) -> Response:
        """All phones and administrators."""
        _administrator(request)
        return RecordResponse(Phones(self._registry.phones()))

    @operation("POST /v1/phones", "admin", {201: ISSUED}, refuses=(400, 403, 409, 413), body=Body(NewPhone))
    async def enrol_phone(self, request: Request) -> Response:
        """Enrol a phone or administrator."""
        actor = _administrator(request)
        new = await record_in(request, NewPhone)
        issued = await self._pools.writing.run(self._registry.add, new.name, new.role, new.expires, actor)
        return RecordResponse(issued, 201, SECRET)

    @operation(
        "POST /v1/phones/{name}/tokens",
        "admin",
        {201: ISSUED},
        refuses=(400, 403, 404, 413),
        takes=(NAME,),
        body=Body(NewToken, required=False),
    )
    async def rotate_token(self, request: Request) -> Response:
        """Issue a fresh token."""
        actor, name = _administrator(request), request.path_params["name"]
        new = await record_in(request, NewToken)
        issued = await self._pools.writing.run(self._registry.rotate, name, new.expires, new.overlap, actor)
        return RecordResponse(issued, 201, SECRET)

    @operation(
        "DELETE /v1/phones/{name}",
        "admin",
        {200: Answer("The phone is revoked.", Revoked)},
        refuses=(403, 404),
        takes=(NAME,),
    )
    async def revoke_phone(self, request: Request) -> Response:
        """Revoke a phone and all its tokens."""
        actor = _administrator(request)
        name = request.path_params["name"]
        tokens = await self._pools.writing.run(self._registry.revoke, name, actor)
        return RecordResponse(Revoked(name, tokens))

    @operation(
        "GET /v1/audit", "admin", {200: Answer("The entries.", AuditEntries)}, refuses=(400,), takes=(LIMIT, BEFORE)
    )
    def audit(self, request: Request) -> Response:
        """What administrators did and what was refused, newest first."""
        _administrator(request)
        limit = whole_number(request, LIMIT)
        before = whole_number(request, BEFORE) if BEFORE.name in request.query_params else None
        entries = self._audit.entries(min(limit or 1, MAX_ENTRIES), before)
        return RecordResponse(AuditEntries(tuple(entries)))


def _administrator(request: Request) -> str:
    principal: Principal | None = getattr(request.state, "principal", None)
    if principal is None or principal.role != "admin":
        raise RequestError(
            403, "this server asks for no tokens; use `phonograd tokens --state`, or set `auth` to tokens"
        )
    return principal.name
