"""Settings: records that a library takes, whose fields declare type, default, range and meaning once.

Options of commands, keys of configuration files, checks and help come from the fields.
"""

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from phonograd.device_runtime.base.documents import MOST, Record

MANY = 10**18 - 1  # msgspec's bounds are 64-bit

Count = Annotated[int, Meta(ge=1, le=MANY)]
FromZero = Annotated[int, Meta(ge=0, le=MANY)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
Chance = Annotated[float, Meta(ge=0, le=1)]

_WORDS = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", Path: "a path"}


@dataclass(frozen=True)
class Field:
    """A field of settings, as it is declared.

    kind: its type without bounds. name: in Python. default: `msgspec.NODEFAULT` if it must be given. about: its
    description, for help and comments. low, high: bounds, None without; open_low, open_high: whether the bound itself
    is out of range. choices: of a Literal. optional: whether None is a value; none_word: what files and options say for
    it, "" if they leave it out. many: a tuple of `kind`. path_unless: of text that is a path but for this word.
    """

    name: str
    kind: type
    default: Any
    about: str
    low: float | None
    high: float | None
    open_low: bool
    open_high: bool
    choices: tuple[Any, ...]
    optional: bool
    none_word: str
    many: bool
    path_unless: str | None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is msgspec.NODEFAULT

    def expectation(self, value: Any = None) -> str:
        """Return what a value must be, in words: the range, and the type where `value` is of another."""
        one, word = self._one(), _WORDS.get(self.kind, "")
        if value is not None and not self._has_type(value) and word not in one:
            one = f"{word}, {one}"
        elif self.high in (MANY, MOST) and isinstance(value, int | float) and value > self.high:
            one = f"at most {self.high}"
        return f"a list, each {one}" if self.many else one

    def takes(self, value: Any) -> bool:
        """Whether the value has the type and is in range."""
        if self.many:
            return isinstance(value, Sequence) and not isinstance(value, str) and all(map(self._takes_one, value))
        return (value is None and self.optional) or self._takes_one(value)

    def _takes_one(self, value: Any) -> bool:
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return True
        if self.kind is type(None):
            return False
        if not isinstance(self.kind, type) or self.kind not in _WORDS:
            return isinstance(value, self.kind)
        if not self._has_type(value):
            return False
        return not isinstance(value, int | float) or isinstance(value, bool) or self._in_range(value)

    def _has_type(self, value: Any) -> bool:
        kinds = (int, float) if self.kind is float else (self.kind,)
        return isinstance(value, kinds) and isinstance(value, bool) == (self.kind is bool)

    def _in_range(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        above = self.low is None or (value > self.low if self.open_low else value >= self.low)
        return above and (self.high is None or (value < self.high if self.open_high else value <= self.high))

    def _one(self) -> str:
        choices = [str(choice) for choice in self.choices]
        if self.kind is type(None):
            return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
        words = [self.none_word] if self.none_word else []
        return " or ".join([self._range(), *choices, *words])

    def _range(self) -> str:
        low = "" if self.low is None else f"{'more than' if self.open_low else 'at least'} {_show_number(self.low)}"
        most = None if self.high in (MANY, MOST) else self.high
        high = "" if most is None else f"{'below' if self.open_high else 'at most'} {_show_number(most)}"
        name = _WORDS.get(self.kind) or str(getattr(self.kind, "__name__", self.kind))
        return ", ".join(part for part in (low, high) if part) or name


class Settings(Record, frozen=True):
    """Settings whose fields are checked when they are made.

    A subclass declares fields as `name: Annotated[TYPE, Meta(ge=..., description="...")] = DEFAULT`, and rules that
    concern several fields in `check_together`. Raises ValueError, which names the field in backticks.
    """

    def __post_init__(self) -> None:
        for field in fields_of(type(self)).values():
            value = getattr(self, field.name)
            self.require(field.name, field.takes(value), field.expectation(value))
        self.check_together()

    def check_together(self) -> None:
        """Raise ValueError for fields that do not go together."""

    def require(self, name: str, good: bool, expected: str) -> None:
        """Raise ValueError unless `good`: what field `name` is, and what was expected."""
        value = getattr(self, name)
        if not good:
            raise ValueError(f"`{name}` is {value if isinstance(value, Path) else repr(value)}, expected {expected}")


def as_dict(settings: Settings) -> dict[str, Any]:
    """The settings and those within them as dicts, by field."""
    return {name: as_dict(value) if isinstance(value, Settings) else value for name, value in asdict(settings).items()}


@functools.cache
def fields_of(kind: type[Settings]) -> Mapping[str, Field]:
    """The fields of a class of settings by name, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: _field(one.name, hints[one.name], _default(one)) for one in msgspec.structs.fields(kind)}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _field(name: str, hint: Any, default: Any) -> Field:
    bounds: dict[str, Any] = {}
    kinds: list[Any] = []
    choices: list[Any] = []
    many = _collect(hint, bounds, kinds, choices)
    optional = type(None) in kinds
    kinds = [kind for kind in kinds if kind is not type(None)]
    low, high = bounds.get("gt", bounds.get("ge")), bounds.get("lt", bounds.get("le"))
    kind = functools.reduce(operator.or_, kinds) if kinds else type(None)
    about, extra = bounds.get("description", ""), bounds.get("extra", {})
    opened, word, unless = ("gt" in bounds, "lt" in bounds), extra.get("none", ""), extra.get("path_unless")
    return Field(name, kind, default, about, low, high, *opened, tuple(choices), optional, word, many, unless)


def _collect(hint: Any, bounds: dict[str, Any], kinds: list[Any], choices: list[Any]) -> bool:
    """Collect what an annotation says: bounds and description, types, and choices. True for a tuple of them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        many = _collect(arguments[0], bounds, kinds, choices)
        for meta in arguments[1:]:  # the outer one last: it says more of this field
            said = {name: getattr(meta, name) for name in ("ge", "gt", "le", "lt", "description", "extra")}
            bounds |= {name: value for name, value in said.items() if value is not None}
        return many
    if origin in (Union, UnionType):
        return any(_collect(one, bounds, kinds, choices) for one in arguments)
    if origin is Literal:
        choices += arguments
    elif origin is tuple:
        _collect(arguments[0], bounds, kinds, choices)
        return True
    else:
        kinds.append(origin or hint)
    return False


def _show_number(number: float) -> str:
    return f"{number:g}".replace("e+0", "e").replace("e-0", "e-") if isinstance(number, float) else str(number)
