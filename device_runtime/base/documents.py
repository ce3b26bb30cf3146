"""JSON documents: records whose fields have types, bounds and descriptions.

msgspec reads and writes them, and gives their JSON Schema. Here is what it leaves out: refusing NaN, infinity and
repeated keys, and messages that name the field and the value found.
"""

import copy
import json
import math
import re
import sys
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec import Meta

# No measurement is larger, and every JSON reader keeps whole numbers up to here.
MOST = 2**53

Integer = Annotated[int, Meta(ge=-MOST, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Positive = Annotated[int, Meta(ge=1, le=MOST)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Duration = Annotated[float, Meta(ge=1e-9, le=MOST)]  # something is divided by it
Ratio = Annotated[float, Meta(ge=0)]  # of two numbers, so it may be larger
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]  # `$` alone lets a line break follow

S = TypeVar("S", bound=msgspec.Struct)
Schema = dict[str, Any]
# How msgspec ends a message: where the value is, or the object that has it as a key. A step is the name of a field, an
# index, or three dots for some key.
_PLACE = re.compile(r" - at `(key` in `)?\$([\w.\[\]]*)`\Z")
_STEP = re.compile(r"\w+|\.{3}")
_FIELD = re.compile(r"Object (missing|contains)[\w ]+ field `(.*)`", re.DOTALL)
_FIELD_WORDS = {"missing": "missing", "contains": "no such field"}
_WORDS = {"int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false", "array": "a list"}
_WORDS |= {"object": "an object"}


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object of a document: all of its fields and no others, each of its type and within its bounds."""


class FieldError(ValueError):
    """Not JSON, or a field is missing, unknown, of another type or out of bounds; the message names its path."""


def about(text: str) -> Meta:
    """What a field is, with its unit, for the JSON Schema and the documentation."""
    return Meta(description=text)


def parse(text: bytes | str) -> Any:
    """The JSON value of `text`. Raises FieldError if it is not JSON, has NaN or infinity, or a key twice."""
    try:
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_unique_keys)
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:
        raise FieldError(f"not JSON: {error}") from error


def read(kind: type[S], value: Any) -> S:
    """A JSON value as `kind`. Raises FieldError: which field is wrong, what was expected, and what was found."""
    require_json(value)
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ValueError):  # of a record's own check
            raise FieldError(str(error.__cause__)) from error
        raise FieldError(_explain(kind, value, str(error))) from error


def document_of(record: Record) -> dict[str, Any]:
    """The record as JSON values, its fields in their order. Raises FieldError for a number that JSON has not."""
    document: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    require_json(document)
    return document


def schemas(*kinds: type[msgspec.Struct]) -> dict[str, Schema]:
    """The $defs of a JSON Schema (2020-12): these kinds and all that they hold, by name."""
    return msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")[1]


def require_json(value: Any, path: str = "") -> None:
    """Raise FieldError naming the path of what other programs can't read: NaN, infinity, other types than JSON's."""
    if isinstance(value, dict):
        for key, inner in value.items():
            # msgspec reads the key "-0" as the number 0.
            _require(isinstance(key, str) and key != "-0", path, "keys that are strings, and none -0", key)
            require_json(inner, _join(path, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            require_json(inner, _join(path, index))
    elif isinstance(value, float):
        _require(math.isfinite(value), path, "a finite number", value)
    else:
        _require(value is None or isinstance(value, str | int), path, "a JSON value", value)


def _no_number(constant: str) -> NoReturn:
    raise FieldError(f"holds {constant}, which is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise FieldError(f"has the key {_show(twice)} twice in one object")
    return document


def _explain(kind: type[msgspec.Struct], document: Any, message: str) -> str:
    """msgspec's message in words, with the whole path and with what was found there."""
    place = _PLACE.search(message)
    said = message[: place.start()] if place else message
    steps = _STEP.findall(place[2]) if place else []
    key_wrong = place is not None and place[1] is not None
    path, step, found, node = _follow_steps(kind, document, message, [*steps, "..."] if key_wrong else steps)
    if not key_wrong:
        path = _join(path, step)
    if field := _FIELD.fullmatch(said):
        return f"{_join(path, field[2])}: {_FIELD_WORDS[field[1]]}"
    if "enum" in node:
        expected = " or ".join(map(repr, node["enum"]))
    elif said.startswith("Expected"):
        expected = re.sub(r"`(.*?)`", _in_words, said.removeprefix("Expected ").partition(", got ")[0])
    else:
        lowest = node.get("minimum", node.get("exclusiveMinimum", -sys.float_info.max))
        highest = node.get("maximum", node.get("exclusiveMaximum", sys.float_info.max))
        expected = f"a number between {lowest} and {highest}"
    if key_wrong:
        expected, found = f"as a key {expected}", step
    return _message(path, expected, found)


def _follow_steps(
    kind: type[msgspec.Struct], document: Any, message: str, steps: list[str]
) -> tuple[str, str | int, Any, Schema]:
    """Follow the steps, and return the path but for its last step, that step, the value there, and its schema."""
    definitions = schemas(kind)
    document = found = copy.deepcopy(document)
    path, node = "", definitions[kind.__name__]
    step: str | int = ""
    for name in steps:
        path = _join(path, step)
        if isinstance(found, list):
            step, node = int(name), node["items"]
        elif name == "...":
            step, node = _refused_key(kind, document, found, message), node["additionalProperties"]
        else:
            step, node = name, node["properties"][name]
        node = next(option for option in node.get("anyOf", [node]) if option.get("type") != "null")
        node = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        found = found[step]
    return path, step, found, node


def _refused_key(kind: type[msgspec.Struct], document: Any, mapping: dict[str, Any], message: str) -> str:
    """Find the key of a mapping in the document that msgspec means: the one without which it says something else."""
    key, value = "", None
    for key in list(mapping):
        value = mapping.pop(key)
        try:
            msgspec.convert(document, kind, str_keys=True)
        except msgspec.ValidationError as error:
            if str(error) == message:
                continue
        break
    mapping[key] = value
    return key


def _in_words(kinds: re.Match[str]) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds[1].split(" | "))


def _require(good: bool, path: str, expected: str, found: object) -> None:
    if not good:
        raise FieldError(_message(path, expected, found))


def _message(path: str, expected: str, found: object) -> str:
    return f"{path}: expected {expected}, found {_show(found)}".removeprefix(": ")


def _show(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _join(path: str, step: str | int) -> str:
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step
