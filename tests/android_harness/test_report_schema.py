"""The JSON Schema that the report's structures give, and the tables that docs/phone-bench.md has of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from phonograd.android_harness.report.document import schema

OBJECTS = {"The document": schema(), **schema()["$defs"]}
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "phone-bench.md"


def test_it_is_a_schema_of_closed_objects() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    for name, node in OBJECTS.items():
        assert node["required"] == list(node["properties"]), name
        assert node["additionalProperties"] is False, name


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
    for node in OBJECTS.values():
        assert node["description"].endswith(".")
        for name, field in node["properties"].items():
            assert field["description"], name
            for ending, unit in units.items():
                assert not name.endswith(ending) or unit in field["description"], name


def table(name: str) -> Iterator[str]:
    """The fields of an object as docs/phone-bench.md has them."""
    yield "| field | type | |"
    yield "|---|---|---|"
    for field, what in OBJECTS[name]["properties"].items():
        yield f"| `{field}` | {kind_of(what)} | {what['description']} |"


def kind_of(node: dict[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if "anyOf" in node:
        return " or ".join(kind_of(option) for option in node["anyOf"])
    if "$ref" in node:
        return str(node["$ref"].rpartition("/")[2])
    if node["type"] == "array":
        return f"list of {kind_of(node['items'])}"
    by_name = f"{kind_of(node['additionalProperties'])} by name" if "additionalProperties" in node else None
    return by_name or str(node["type"])


def test_the_documented_fields_are_the_schemas() -> None:
    """The failure shows what to paste after a change."""
    for name in ("The document", "PhoneSummary", "OutputLayer", "Spread"):
        assert "\n".join(table(name)) in DOCUMENTATION.read_text("utf-8"), name
