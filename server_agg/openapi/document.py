"""/openapi.json: what this server answers, as it is set up; for people, generators of clients, and fuzzers."""

import copy
from collections.abc import Collection
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from phonograd import __version__
from phonograd.device_runtime.client.protocol import TOKEN
from phonograd.server_agg.openapi.parts import Part, problems
from phonograd.server_agg.openapi.paths import PATHS
from phonograd.server_agg.openapi.schemas import SCHEMAS
from phonograd.server_agg.security.roles import ACCESS, Access
from phonograd.server_agg.settings.security import SecuritySettings

# What the guard answers anyone with, wherever they ask.
EVERYWHERE = (403, 414, 429, 431, 507)
WHOSE: dict[Access, str] = {
    "open": "Asks for no token.",
    "phone": "Asks for any valid token.",
    "admin": "Asks for an administrator's token, or for the cookie that the admin link gives.",
}


def openapi_document(asked: Collection[Access]) -> dict[str, Any]:
    """The document of a server that asks for tokens where these are to come: phones, administrators, both or none."""
    access = {path.replace(":int", ""): whose for path, whose in ACCESS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "phonograd aggregation server",
            "version": __version__,
            "description": "Rounds and models for phones, their updates back, and what both cost.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {path: _path(item, access[path], access[path] in asked) for path, item in PATHS.items()},
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": TOKEN.pattern.removesuffix("\\Z")},
                "password": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "For browsers: any user name, the token as password.",
                },
                "link": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "phonograd_admin_PORT",
                    "description": "For browsers: what /admin answers the admin link with.",
                },
            },
        },
    }


class OpenApi:
    """The route's handler."""

    def __init__(self, security: SecuritySettings, host: str):
        asked: set[Access] = set()
        if security.auth != "none":
            asked.add("admin")
        if security.asks_for_tokens(host):
            asked.add("phone")
        self._document = openapi_document(asked)

    async def answer(self, request: Request) -> Response:
        """The document."""
        del request
        return JSONResponse(self._document)


def _path(item: Part, whose: Access, asked: bool) -> Part:
    """A path with what all operations have in common, and HEAD beside GET."""
    item = copy.deepcopy(item)
    ways: list[Part] = [{"token": []}, {"password": []}, *([{"link": []}] if whose == "admin" else [])]
    for operation in item.values():
        operation["responses"] |= problems(*EVERYWHERE, *((401,) if asked else ()))
        operation["security"] = ways if asked else []
        operation["description"] = WHOSE[whose if asked else "open"]
    if "get" in item and "head" not in item:
        item["head"] = _head_of(item["get"])
    for answer in item.get("head", {}).get("responses", {}).values():
        answer.pop("content", None)
    return item


def _head_of(get: Part) -> Part:
    head = copy.deepcopy(get)
    head["operationId"] += "Head"
    head["summary"] = f"The headers of: {head['summary']}"
    return head
