"""The administrators' API: phones, their tokens, and the audit log, as routes for the application to mount."""

import dataclasses
import json
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from phonograd.server_agg.http.lanes import Lanes
from phonograd.server_agg.http.requests import small_body
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.security.owner import LINK_KEY, LINK_PATH, Owner
from phonograd.server_agg.security.registry import PhoneRegistry, Principal
from phonograd.server_agg.security.tokens import DEFAULT_LIFETIME, DEFAULT_OVERLAP
from phonograd.server_agg.storage.audit import AuditLog

MAX_ENTRIES = 1000
SECRET = {"Cache-Control": "no-store"}


def admin_routes(registry: PhoneRegistry, audit: AuditLog, owner: Owner, lanes: Lanes) -> list[Route]:
    """GET and POST /v1/phones, POST /v1/phones/{name}/tokens, DELETE /v1/phones/{name}, GET /v1/audit; /admin.

    The guard lets administrators in only, but for /admin, which is the link that the server printed. A server that asks
    nobody can't tell them from others, and whoever came by could make a token for later: there these routes refuse, and
    `phonograd tokens --state` does it.
    """
    api = _Api(registry, audit, owner, lanes)
    return [
        Route(LINK_PATH, api.admit, methods=["GET"]),
        Route("/v1/phones", api.list, methods=["GET"]),
        Route("/v1/phones", api.add, methods=["POST"]),
        Route("/v1/phones/{name}", api.revoke, methods=["DELETE"]),
        Route("/v1/phones/{name}/tokens", api.rotate, methods=["POST"]),
        Route("/v1/audit", api.entries, methods=["GET"]),
    ]


class _Api:
    def __init__(self, registry: PhoneRegistry, audit: AuditLog, owner: Owner, lanes: Lanes):
        self._registry = registry
        self._audit = audit
        self._owner = owner
        self._lanes = lanes

    async def admit(self, request: Request) -> Response:
        """Exchange the admin link's key for a cookie, and go on to the dashboard."""
        if not self._owner.has_key(request.query_params.get(LINK_KEY, "")):
            refusal = "403: not the admin link's key"
            await self._lanes.writing.run(
                self._audit.record_refusal, request.state.actor, request.method, LINK_PATH, refusal
            )
            raise RequestError(
                403, "the admin link of this run expected, found another; open the one that the server printed last"
            )
        response = RedirectResponse("/", 303, {**SECRET, "Referrer-Policy": "no-referrer"})
        self._owner.give_cookie(request, response)
        return response

    async def list(self, request: Request) -> Response:
        _administrator(request)
        phones = await run_in_threadpool(self._registry.phones)
        return JSONResponse({"phones": [dataclasses.asdict(phone) for phone in phones]})

    async def add(self, request: Request) -> Response:
        actor = _administrator(request)
        given = await _texts(request, {"name": None, "role": "phone", "expires": DEFAULT_LIFETIME})
        issued = await self._lanes.writing.run(self._registry.add, **given, actor=actor)
        return JSONResponse(dataclasses.asdict(issued), 201, SECRET)

    async def rotate(self, request: Request) -> Response:
        actor = _administrator(request)
        given = await _texts(request, {"expires": DEFAULT_LIFETIME, "overlap": DEFAULT_OVERLAP})
        issued = await self._lanes.writing.run(self._registry.rotate, request.path_params["name"], **given, actor=actor)
        return JSONResponse(dataclasses.asdict(issued), 201, SECRET)

    async def revoke(self, request: Request) -> Response:
        actor = _administrator(request)
        name = request.path_params["name"]
        tokens = await self._lanes.writing.run(self._registry.revoke, name, actor)
        return JSONResponse({"name": name, "tokens_revoked": tokens})

    async def entries(self, request: Request) -> Response:
        _administrator(request)
        limit = _number(request, "limit", 100)
        before = _number(request, "before", None)
        entries = await run_in_threadpool(self._audit.entries, min(limit or 1, MAX_ENTRIES), before)
        return JSONResponse({"entries": [dataclasses.asdict(entry) for entry in entries]})


def _administrator(request: Request) -> str:
    principal: Principal | None = getattr(request.state, "principal", None)
    if principal is None or principal.role != "admin":
        raise RequestError(
            403, "this server asks for no tokens; use `phonograd tokens --state`, or set `auth` to tokens"
        )
    return principal.name


async def _texts(request: Request, defaults: dict[str, str | None]) -> dict[str, str]:
    """The body, a JSON object of texts with these keys; None: required. Raises RequestError."""
    body = await small_body(request)
    try:
        found: Any = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "a JSON object expected, found something else") from error
    given = {**defaults, **found} if isinstance(found, dict) else {}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    if not texts.keys() == given.keys() == defaults.keys():
        raise RequestError(400, f"a JSON object of texts expected: {', '.join(defaults)}; found something else")
    return texts


def _number(request: Request, name: str, default: int | None) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise RequestError(400, f"{name}: a number expected, found {text[:40]!r}")
    return int(text)
