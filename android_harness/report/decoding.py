"""A JSON value read as a dataclass, strictly: every field there, of its type, within the bounds of the JSON Schema."""

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from phonograd.android_harness.errors import ReportError

T = TypeVar("T")
# No measurement is larger, and every JSON reader keeps whole numbers up to here.
MOST = 2**53
_CORE = re.compile("0|[1-9][0-9]{0,3}")
Node = Mapping[str, Any]
# What a JSON value of a Python type is called in messages.
_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def decode(kind: type[T], value: Any, definitions: Mapping[str, Node], path: str) -> T:
    """`value` as the dataclass `kind`; `definitions` are the schema's $defs, by the names of the dataclasses.

    Raises ReportError naming the path of the field: missing, unknown, of another type, not finite, out of bounds.
    """
    _require(isinstance(value, dict), path, "an object", value)
    node = definitions[kind.__name__]
    hints = typing.get_type_hints(kind)
    for name in value.keys() - hints.keys():
        raise ReportError(f"{_join(path, name)}: no such field; was it written by another version of phonograd?")
    arguments = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # a dataclass, by contract
        place = _join(path, field.name)
        if field.name not in value:
            raise ReportError(f"{place}: missing; the report is cut short or was edited")
        bounds = node["properties"][field.name]
        arguments[field.name] = _read(hints[field.name], value[field.name], bounds, definitions, place)
    return kind(**arguments)


def finite(value: Any, path: str) -> Any:
    """`value` if all of it is JSON that other programs can read: no NaN, no infinity, no other types.

    Raises ReportError naming the path.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            _require(isinstance(key, str), path, "keys that are strings", key)
            finite(inner, _join(path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            finite(inner, f"{path}[{place}]")
    elif isinstance(value, float):
        _require(math.isfinite(value), path, "a finite number", value)
    else:
        _require(value is None or isinstance(value, str | int), path, "a JSON value", value)
    return value


def _read(hint: Any, value: Any, node: Node, definitions: Mapping[str, Node], path: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # X | None
        return None if value is None else _read(inner[0], value, node, definitions, path)
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, definitions, path)
    if origin is tuple:
        _require(isinstance(value, list), path, "a list", value)
        items = node["items"]
        return tuple(_read(inner[0], item, items, definitions, f"{path}[{n}]") for n, item in enumerate(value))
    if origin is typing.Literal:
        _require(value in inner, path, " or ".join(map(repr, inner)), value)
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(inner, value, node, definitions, path)
    return _scalar(hint, value, node, path)


def _mapping(
    inner: tuple[Any, ...], value: Any, node: Node, definitions: Mapping[str, Node], path: str
) -> dict[Any, Any]:
    _require(isinstance(value, dict), path, "an object", value)
    key_type, value_type = inner
    if value_type is object:
        return dict(finite(value, path))
    if key_type is int:
        for key in value:
            _require(_CORE.fullmatch(key) is not None, path, "keys that are the numbers of cores", key)
    values = node["additionalProperties"]
    return {
        key_type(key): _read(value_type, item, values, definitions, _join(path, key)) for key, item in value.items()
    }


def _scalar(kind: type, value: Any, node: Node, path: str) -> Any:
    _require(_is_a(kind, value), path, _NAMES[kind], value)
    if kind in (int, float):
        _require(-MOST <= value <= MOST, path, "a number between -2^53 and 2^53", value)
        value = kind(value)
    if "minimum" in node:
        _require(value >= node["minimum"], path, f"at least {node['minimum']}", value)
    if "pattern" in node:
        _require(re.fullmatch(node["pattern"], value) is not None, path, f"a match of {node['pattern']}", value)
    return value


def _is_a(kind: type, value: Any) -> bool:
    """Whether a JSON value is of the type: 2 is a float as well, true is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _require(good: bool, path: str, expected: str, found: object) -> None:
    if not good:
        shown = repr(found)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        raise ReportError(f"{path or 'the document'}: expected {expected}, found {shown}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)
