"""/openapi.json: the HTTP API of this server as it is configured, for people, client generators and fuzzers."""

import copy
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from phonograd import __version__
from phonograd.device_runtime.client.protocol import TOKEN
from phonograd.server_agg.http.operations import (
    RETRY_AFTER,
    Access,
    Answer,
    Body,
    Operation,
    Parameter,
    operation,
)
from phonograd.server_agg.http.problems import PROBLEM, Problem
from phonograd.server_agg.settings.security import SecuritySettings

Part = dict[str, Any]

# What the guard may answer to any request.
EVERYWHERE = (403, 414, 415, 429, 431, 503, 507)
WHOSE: dict[Access, str] = {
    "open": "Needs no token.",
    "phone": "Needs a valid token.",
    "admin": "Needs an administrator's token, or the cookie that the admin link sets.",
}
REFUSED: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "A valid token is missing.",
    403: "Not allowed for this caller.",
    404: "Not found.",
    405: "The path does not take this method.",
    408: "Nothing arrived for too long.",
    409: "A conflict: another round or offset, or the name is taken.",
    410: "The upload has ended.",
    411: "Content-Length is missing.",
    412: "Unsupported version of the tus protocol.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "Unsupported media type, or a compressed body.",
    416: "The range starts beyond the end.",
    422: "The update does not fit the model.",
    429: "Too many requests.",
    431: "The headers are too large.",
    460: "The checksum does not match: the bytes changed in transit.",
    503: "The server cannot work now, is at a limit of its machine, or the round is closing.",
    507: "The server's disk or ledger cannot store it.",
}
COME_AGAIN = (409, 429, 503)
SECURITY: Part = {
    "token": {"type": "http", "scheme": "bearer", "bearerFormat": TOKEN.pattern.removesuffix(r"\Z")},
    "password": {
        "type": "http",
        "scheme": "basic",
        "description": "For browsers: any user name, the token as password.",
    },
    "link": {
        "type": "apiKey",
        "in": "cookie",
        "name": "phonograd_admin_PORT",
        "description": "For browsers: the cookie that /admin sets.",
    },
}


def openapi_document(operations: Collection[Operation], asked: Collection[Access]) -> Part:
    """The document of a server that asks these for tokens: phones, administrators, both or none."""
    schemas = _Schemas()
    paths: dict[str, Part] = {}
    for one in operations:
        item: Part = paths.setdefault(one.path.replace(":int", ""), {})
        item[one.method.lower()] = _operation(one, schemas, one.access in asked)
    for item in paths.values():
        if "get" in item and "head" not in item:
            item["head"] = _head_of(item["get"])
        for answer in item.get("head", {}).get("responses", {}).values():
            answer.pop("content", None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "phonograd aggregation server",
            "version": __version__,
            "description": "Rounds and models for phones, their updates back, and what both cost.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": SECURITY},
    }


class OpenApiRoute:
    """The handler; `operations`: all of the server's, this one too."""

    def __init__(self, operations: Collection[Operation], security: SecuritySettings, host: str):
        self._operations = operations
        self._asked: set[Access] = set()
        if security.auth != "none":
            self._asked.add("admin")
        if security.asks_for_tokens(host):
            self._asked.add("phone")

    @operation("GET /openapi.json", "open", {200: Answer("OpenAPI 3.1.", dict[str, Any])})
    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document that describes this server."""
        return JSONResponse(self._document)

    @cached_property
    def _document(self) -> Part:
        # Made when first asked for: it takes longer than all else that a server starts with.
        return openapi_document(self._operations, self._asked)


class _Schemas:
    """JSON schemas of types; the records among them, and those that they hold, go to `components`."""

    def __init__(self) -> None:
        self.components: Part = {}

    def of(self, kind: Any) -> Part:
        (schema,), components = msgspec.json.schema_components((kind,), ref_template="#/components/schemas/{name}")
        for name, component in components.items():
            known = self.components.setdefault(name, component)
            assert known == component, f"two records have the name {name}"
        return schema


def _operation(one: Operation, schemas: _Schemas, asked: bool) -> Part:
    refusals = (*one.refusals, *EVERYWHERE, *((401,) if asked else ()))
    answers = {status: _answer(answer, schemas) for status, answer in one.answers.items()}
    answers |= {status: _answer(_refusal(status), schemas) for status in refusals}
    ways: list[Part] = [{"token": []}, {"password": []}, *([{"link": []}] if one.access == "admin" else [])]
    first, *others = one.handler.split("_")
    return {
        "operationId": first + "".join(map(str.capitalize, others)),
        "summary": one.summary,
        "description": WHOSE[one.access if asked else "open"],
        **({"parameters": [_parameter(given, schemas) for given in one.parameters]} if one.parameters else {}),
        **({"requestBody": _body(one.body, schemas)} if one.body else {}),
        "responses": {str(status): answer for status, answer in answers.items()},
        "security": ways if asked else [],
    }


def _refusal(status: int) -> Answer:
    return Answer(REFUSED[status], Problem, (PROBLEM,), (RETRY_AFTER,) if status in COME_AGAIN else ())


def _answer(answer: Answer, schemas: _Schemas) -> Part:
    part: Part = {"description": answer.description}
    if answer.kind is not None:
        part["content"] = {media: {"schema": schemas.of(answer.kind)} for media in answer.media}
    if answer.headers:
        part["headers"] = {
            one.name: _describe(one.required, one.description, schemas.of(one.kind)) for one in answer.headers
        }
    return part


def _parameter(given: Parameter, schemas: _Schemas) -> Part:
    schema = schemas.of(given.kind) | ({} if given.default is None else {"default": given.default})
    required = given.required or given.place == "path"
    return {"name": given.name, "in": given.place, **_describe(required, given.description, schema)}


def _describe(required: bool, description: str, schema: Part) -> Part:
    return {"required": required, **({"description": description} if description else {}), "schema": schema}


def _body(body: Body, schemas: _Schemas) -> Part:
    return {"required": body.required, "content": {body.media: {"schema": schemas.of(body.kind)}}}


def _head_of(get: Part) -> Part:
    head = copy.deepcopy(get)
    head["operationId"] += "Head"
    head["summary"] = f"The headers of: {head['summary']}"
    return head
