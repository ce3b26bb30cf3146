"""The JSON Schema and the dataclasses are the same thing, written twice: descriptions there, types here."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from phonograd.android_harness import result as result_module
from phonograd.android_harness.phones import facts as facts_module
from phonograd.android_harness.report import compare as compare_module
from phonograd.android_harness.report import summary as summary_module
from phonograd.android_harness.report.compare import Comparison
from phonograd.android_harness.report.document import schema
from phonograd.android_harness.report.summary import PhoneSummary


def dataclasses_of(*modules: types.ModuleType) -> dict[str, type]:
    return {
        name: kind
        for module in modules
        for name, kind in vars(module).items()
        if dataclasses.is_dataclass(kind) and isinstance(kind, type)
    }


def drawn(hint: Any) -> Any:  # noqa: PLR0911  # one kind of type a line
    """What the schema must say of a type, descriptions and bounds left out."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (types.UnionType, typing.Union):  # X | None
        value = drawn(inner[0])
        if "enum" in value:
            return {"enum": [*value["enum"], None]}
        return {"type": [value["type"], "null"]} if "type" in value else {"anyOf": [value, {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": drawn(inner[0])}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin is not None:
        keys = {"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,3})$"}} if inner[0] is int else {}
        values = {} if inner[1] is object else {"additionalProperties": drawn(inner[1])}
        return {"type": "object", **keys, **values}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}


def bare(node: Any) -> Any:
    """A schema without descriptions and bounds."""
    if isinstance(node, list):
        return [bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value if key == "propertyNames" else bare(value)
        for key, value in node.items()
        if key not in ("description", "minimum") and not (key == "pattern" and "type" in node)
    }


def test_schema_and_dataclasses_say_the_same() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    kinds = dataclasses_of(result_module, facts_module, summary_module, compare_module)
    unused = kinds.keys() - schema()["$defs"].keys()
    assert unused == {"PhoneBenchReport", "Phone"}  # the document itself, and what `phonograd devices` lists
    assert schema()["$defs"].keys() <= kinds.keys()
    head = {"schema", "schema_version", "summary", "comparison"}
    nodes = {**schema()["$defs"], "PhoneBenchReport": schema()}
    for name, node in nodes.items():
        hints = typing.get_type_hints(kinds[name])
        properties = {
            key: bare(value)
            for key, value in node["properties"].items()
            if key not in head or name != "PhoneBenchReport"
        }
        assert properties == {field: drawn(hint) for field, hint in hints.items()}, name
        assert node["required"] == list(node["properties"]), name
        assert node["additionalProperties"] is False, name
    assert bare(schema()["properties"]["summary"]) == drawn(tuple[PhoneSummary, ...])
    assert bare(schema()["properties"]["comparison"]) == drawn(Comparison | None)


def test_every_field_is_described_with_its_unit() -> None:
    units = {
        "seconds": "in seconds",
        "_s": "second",
        "bytes": "in bytes",
        "_khz": "in kHz",
        "_c": "°C",
        "percent": "in percent",
        "loss": "in nats a token",
    }
    for node in (schema(), *schema()["$defs"].values()):
        assert node["description"].endswith(".")
        for name, field in node["properties"].items():
            assert field["description"], name
            for ending, unit in units.items():
                assert not name.endswith(ending) or unit in field["description"], name


DOCUMENTATION = Path(__file__).parents[2] / "docs" / "phone-bench.md"


def field_tables() -> Iterator[str]:
    """The schema as docs/phone-bench.md has it: a table for each kind of object."""
    for name, node in (("The document", schema()), *schema()["$defs"].items()):
        if name != "The document":
            yield f"\n**{name}**: {node['description']}\n"
        yield "| field | type | |"
        yield "|---|---|---|"
        for field, what in node["properties"].items():
            yield f"| `{field}` | {kind_of(what)} | {what['description']} |"


def kind_of(node: dict[str, Any]) -> str:  # noqa: PLR0911  # one kind of type a line
    if "const" in node:
        return f"`{node['const']!r}`".replace("'", '"')
    if "enum" in node:
        return " or ".join("null" if value is None else f"`{value}`" for value in node["enum"])
    if "anyOf" in node:
        return " or ".join(kind_of(option) for option in node["anyOf"])
    if "$ref" in node:
        return node["$ref"].rpartition("/")[2]
    if node["type"] == "array":
        return f"list of {kind_of(node['items'])}"
    if node["type"] == "object" and "additionalProperties" in node:
        return f"{kind_of(node['additionalProperties'])} by name"
    return " or ".join([node["type"]] if isinstance(node["type"], str) else node["type"])


def test_the_documented_fields_are_the_schemas() -> None:
    assert "\n".join(field_tables()) in DOCUMENTATION.read_text("utf-8")
