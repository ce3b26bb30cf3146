"""What an OpenAPI document is put together from: parameters, bodies, answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from phonograd.server_agg.openapi.schemas import PHONE_PATTERN, Schema

Part = dict[str, Any]
OCTETS: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
PROBLEM: Part = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
RETRY_AFTER: Part = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}

WORDS: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "A valid token is missing.",
    403: "Not for whoever asks.",
    404: "Not here.",
    405: "Not a method of this path.",
    408: "Nothing came for too long.",
    409: "Not now, or not this: another round, another offset, taken already.",
    410: "The upload is at its end.",
    411: "No Content-Length.",
    412: "Another version of the tus protocol.",
    413: "Larger than what is taken.",
    414: "The URL is too long.",
    415: "Another type of body.",
    416: "A range behind the end.",
    422: "The update does not fit the model.",
    429: "Too many requests.",
    431: "The headers are too large.",
    460: "The bytes have another checksum: they changed on their way.",
    503: "Not able to work.",
    507: "The disk or the ledger refuses.",
}
WITH_RETRY = (409, 429)
TUS: Part = {"Tus-Resumable": {"required": True, "schema": {"const": "1.0.0"}}}
OFFSET: Part = {
    "Upload-Offset": {"required": True, "description": "Bytes that are here.", "schema": {"type": "integer"}},
    "Upload-Expires": {"description": "While it is unfinished.", "schema": {"type": "string"}},
    "Cache-Control": {"required": True, "schema": {"const": "no-store"}},
}


def ref(name: str) -> Schema:
    """A schema of components."""
    return {"$ref": f"#/components/schemas/{name}"}


def answer(
    what: str, schema: Schema | None = None, media: str = "application/json", headers: Part | None = None
) -> Part:
    """An answer that is no problem; without a schema it has no body."""
    content = {} if schema is None else {"content": {media: {"schema": schema}}}
    return {"description": what, **content, **({"headers": headers} if headers else {})}


def problems(*statuses: int) -> dict[str, Part]:
    """Answers that are problem documents."""
    return {
        str(status): {
            "description": WORDS[status],
            "content": PROBLEM,
            **({"headers": RETRY_AFTER} if status in WITH_RETRY else {}),
        }
        for status in statuses
    }


def operation(
    name: str,
    summary: str,
    answers: Mapping[int, Part],
    refusals: Sequence[int] = (),
    parameters: Sequence[Part] = (),
    body: Part | None = None,
) -> Part:
    """A method of a path, but for what all have in common."""
    return {
        "operationId": name,
        "summary": summary,
        **({"parameters": list(parameters)} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": {**{str(status): one for status, one in answers.items()}, **problems(*refusals)},
    }


def parameter(place: str, name: str, schema: Schema, what: str = "", required: bool | None = None) -> Part:
    """A parameter of the path, the query or the headers; one of the path is always required."""
    needed = place == "path" if required is None else required
    return {"name": name, "in": place, "required": needed, "schema": schema, **({"description": what} if what else {})}


def header(name: str, schema: Schema, what: str = "", required: bool = False) -> Part:
    """A header of a request."""
    return parameter("header", name, schema, what, required)


def whole(what: str, name: str, default: int | None = None) -> Part:
    """A whole number in the query."""
    schema: Schema = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
    return parameter("query", name, schema if default is None else {**schema, "default": default}, what)


def body(media: str, schema: Schema, required: bool = True) -> Part:
    """A request's body."""
    return {"required": required, "content": {media: {"schema": schema}}}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
PHONE = header("Phonograd-Phone", {"type": "string", "pattern": PHONE_PATTERN}, "With a token: its own name.", True)
WHO = header("Phonograd-Phone", TEXT, "Who asks, for the ledger and for whether it has a place.")
VERSION = header("Tus-Resumable", {"type": "string", "enum": ["1.0.0"]}, required=True)
CHECKSUM = header(
    "Upload-Checksum",
    {"type": "string", "pattern": "^(sha256 [A-Za-z0-9+/]{43}=|sha1 [A-Za-z0-9+/]{27}=)$"},
    "Of this request's body, base64.",
)
