"""JSON schemas of the documents this server answers with: read off the dataclasses that make them."""

import dataclasses
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from phonograd.server_agg.report.document import BYTES, COUNTS, REPORT_VERSION, RoundReport
from phonograd.server_agg.rounds.responses import OpenRound, Receipt
from phonograd.server_agg.security.registry import Issued, PhoneEntry, Role
from phonograd.server_agg.storage.audit import AuditEntry

Schema = dict[str, Any]
PLAIN: Mapping[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}
PHONE_PATTERN = "^[A-Za-z0-9._-]{1,64}$"
SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
MAYBE_HASH: Schema = {"type": ["string", "null"], "pattern": "^[0-9a-f]{64}$"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "description": "Seconds since 1970, UTC."}
QUALITY: Schema = {"type": "object", "additionalProperties": {"type": "number"}, "description": "Value by metric."}


def exactly(properties: Mapping[str, Any], optional: Sequence[str] = (), description: str = "") -> Schema:
    """An object with these properties and no others."""
    schema: Schema = {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }
    return {**schema, "description": description} if description else schema


def schema_of(kind: Any) -> Schema:
    """The schema of what dataclasses.asdict and json make of a type."""
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if dataclasses.is_dataclass(kind):
        assert isinstance(kind, type)
        hints = get_type_hints(kind)
        fields = {field.name: schema_of(hints[field.name]) for field in dataclasses.fields(kind)}
        return exactly(fields, description=inspect.cleandoc(kind.__doc__ or ""))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _or_null(next(one for one in arguments if one is not type(None)))
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if origin is tuple:
        return {"type": "array", "items": schema_of(arguments[0])}
    raise TypeError(f"no schema for {kind}")


def _or_null(kind: Any) -> Schema:
    schema = schema_of(kind)
    return {**schema, "type": [schema["type"], "null"]}


def array(name: str) -> Schema:
    """A list of what components has under this name."""
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


def _open_round(more: Mapping[str, Any]) -> Schema:
    plain = schema_of(OpenRound)
    fields = {**plain["properties"], "base_sha256": SHA256, **more}
    return exactly(fields, ("participate", "reason"), plain["description"])


OPEN_ROUND = _open_round({})
ROUND_FOR_PHONE = _open_round(
    {
        "accepted": {
            "type": ["integer", "null"],
            "description": "Accepted updates; null in a private round, but for administrators.",
        },
        "model_url": {"type": "string", "description": "Where the base model is."},
        "participate": {"type": "boolean", "description": "Whether the phone that asks has a place."},
        "reason": {**MAYBE_TEXT, "description": "Why it has none."},
    }
)
MODEL = exactly(
    {
        "sha256": SHA256, "round": COUNT, "parent_sha256": MAYBE_HASH, "bytes": COUNT, "created_at": SECONDS,
        "kept": {"type": "boolean", "description": "Whether its file can still be fetched."}, "quality": QUALITY,
    }
)  # fmt: skip
PHONE_COST = exactly(
    {
        "phone": {**MAYBE_TEXT, "description": "null: requests that named no phone."},
        "state": {**MAYBE_TEXT, "description": "What became of its update."}, "codec": MAYBE_TEXT, "reason": MAYBE_TEXT,
        **dict.fromkeys((*BYTES, "requests", "setups"), COUNT),
    }
)  # fmt: skip
REPORT = exactly(
    {
        "version": {"const": REPORT_VERSION},
        "paper": exactly({"mib_per_phone": {"type": "number"}, "gib_per_round": {"type": "number"}}),
        "rounds": array("RoundReport"),
        "totals": exactly(dict.fromkeys((*COUNTS, *BYTES, "rounds_closed"), COUNT)),
    }
)
PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457: what went wrong, for a program and, as detail, for a person.",
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}  # fmt: skip
UPLOAD = exactly(
    {
        "id": {"type": "string"}, "state": {"type": "string"}, "length": COUNT, "offset": COUNT,
        "status": {"type": ["integer", "null"]}, "reason": MAYBE_TEXT,
        "receipt": {"anyOf": [{"$ref": "#/components/schemas/Receipt"}, {"type": "null"}]},
    }
)  # fmt: skip
FIGURE: Schema = {
    "type": "object",
    "properties": {
        "metric": {"type": "string", "pattern": "^[ -~]{1,64}$", "description": "Printable ASCII."},
        "value": {"type": "number", "exclusiveMinimum": -1e300, "exclusiveMaximum": 1e300},
    },
    "required": ["metric", "value"],
    "additionalProperties": False,
}
FIGURE_TAKEN = exactly(
    {"sha256": SHA256, "metric": {"type": "string"}, "value": {"type": "number"}, "reported_at": SECONDS}
)
LIFETIME: Schema = {
    "type": "string",
    "pattern": "^(never|[0-9]{1,8}s|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d)$",
    "description": "Such as 90d, 12h, 30m, 60s, or never; 10 years at most.",
}
NEW_PHONE: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": PHONE_PATTERN},
        "role": {"enum": list(get_args(Role))},
        "expires": LIFETIME,
    },
    "required": ["name"],
    "additionalProperties": False,
}
NEW_TOKEN: Schema = {
    "type": "object",
    "properties": {"expires": LIFETIME, "overlap": {**LIFETIME, "description": "How long the old ones still hold."}},
    "additionalProperties": False,
}

SCHEMAS: Mapping[str, Schema] = {
    "Problem": PROBLEM,
    "OpenRound": OPEN_ROUND,
    "RoundForPhone": ROUND_FOR_PHONE,
    "Receipt": schema_of(Receipt),
    "Upload": UPLOAD,
    "Model": MODEL,
    "RoundReport": schema_of(RoundReport),
    "Report": REPORT,
    "PhoneCost": PHONE_COST,
    "Figure": FIGURE,
    "FigureTaken": FIGURE_TAKEN,
    "Phone": schema_of(PhoneEntry),
    "NewPhone": NEW_PHONE,
    "NewToken": NEW_TOKEN,
    "IssuedToken": schema_of(Issued),
    "AuditEntry": schema_of(AuditEntry),
}
