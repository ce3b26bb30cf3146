"""The values of a command's settings: from its file, then --set, then its flags."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from phonograd.config.layout import GIVEN, MODULE_CLASS, Layout, Table, join_key
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.nearest import did_you_mean
from phonograd.device_runtime.base.settings import Field, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

S = TypeVar("S", bound=Settings)
SET = "--set"
_NAMED = re.compile(r"`(\w+)`")
_PYTHON_WORD = re.compile(r"\b(is|expected) (True|False|None)\b")


class Config:
    """Values by key, such as `rounds.late`, each checked by its field; and where each came from.

    Raises UsageError for a file that is no TOML, an unknown key, a value of another type or out of range, and one of
    the command line that would be ignored.
    """

    def __init__(
        self, layout: Layout, file: Path | None = None, sets: Sequence[str] = (), flags: Mapping[str, Any] | None = None
    ):
        """sets: assignments KEY=VALUE. flags: values of the keys that are options, of those that were given."""
        self.layout = layout
        self._keys = layout.keys()
        self._values: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        if file is not None:
            self._put_all(_document(file), str(file), file.parent)
        assigned = [_assignment(one) for one in sets]
        for key, text in assigned:
            if key in self._keys or (layout.own and key.startswith(f"{layout.own_table}.")):
                self._store(key, self._parse(key, text), SET)
        for key, value in (flags or {}).items():
            self._store(key, value, layout.option(key))
        for key, text in assigned:  # once it is known which tables count
            if key not in self._values:
                self._put_short(key, text)
        self._refuse_ignored()

    @classmethod
    def from_document(cls, layout: Layout, document: Mapping[str, Any], source: str) -> "Config":
        """The values of a report, as `document` returned them. Raises UsageError, as for a file."""
        config = cls(layout)
        config._put_all(document, source, Path())
        return config

    def get(self, key: str) -> Any:
        """The value of a key, or its default; None if it has neither."""
        if key in self._values:
            return self._values[key]
        field = self._keys[key][1]
        return None if field.required else field.default

    def on_command_line(self, key: str) -> bool:
        """Whether --set or an option gives the key: then it must not be ignored, as in a file of all keys."""
        return self._sources.get(key, "").startswith("--")

    def take(self, kind: type[S], **others: Any) -> S:
        """Make settings of the values that count, of defaults, and of `others`. Raises UsageError, naming the key."""
        fields = {field.name: self.get(key) for key, _, field in self._counting(kind) if key in self._values}
        for key, _, field in self._counting(kind):
            if field.required and field.name not in {*fields, *others}:
                name = self.name_of(key)
                raise UsageError(f"{name} is missing" + ("" if name == key else f"; give it, or the key {key}"))
        try:
            return kind(**{**fields, **others})
        except ValueError as error:
            raise UsageError(self._with_keys(str(error))) from error

    def paths(self) -> Iterator[tuple[str, Path]]:
        """Each path that is given in a table that is used, by its key."""
        for key, value in self._values.items():
            if key in self._keys and not self._keys[key][0].used:
                continue
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Path):
                    yield key, one

    @property
    def own(self) -> dict[str, Any]:
        """The values in the table of the user's class, by their names there."""
        path = self.layout.own_table
        own = {key.rpartition(".")[2]: value for key, value in self._values.items() if key not in self._keys}
        return own if path else {}

    def document(self) -> dict[str, Any]:
        """The file that would repeat this: tables that count, with all values that hold; paths are absolute."""
        document: dict[str, Any] = {}
        for table in self.layout.tables:
            for key, field in table.fields() if self.counts(table) else ():
                if (value := self.get(key)) is not None or field.none_word:
                    _place(document, key, field.none_word if value is None else _plain(value))
        for name, value in self.own.items():
            _place(document, join_key(self.layout.own_table, name), value)
        return document

    def counts(self, table: Table) -> bool:
        """Whether the table's values are used."""
        if not table.used or table.chosen_by is None:
            return table.used
        key, values = table.chosen_by
        found = self.get(key)
        own = MODULE_CLASS in values and self._names_own
        return found in values or own or (GIVEN in values and found is not None)

    @property
    def _names_own(self) -> bool:
        return bool(self.layout.own) and self.get(self.layout.own) not in self.layout.known

    def names(self) -> dict[str, str]:
        """How messages name each field: by its option, or by its key."""
        names: dict[str, str] = {}
        for key, (table, field) in self._keys.items():
            if field.name not in names or self.counts(table):
                names[field.name] = self.name_of(key)
        return names

    def name_of(self, key: str) -> str:
        """How messages name a key: by its option if it has one and neither the file nor --set gives it."""
        source = self._sources.get(key, "-")
        if key in self.layout.flags and source != SET and source.startswith("-"):
            return self.layout.option(key)
        return key

    def _counting(self, kind: type[Settings]) -> Iterator[tuple[str, Table, Field]]:
        for key, (table, field) in self._keys.items():
            if table.kind is kind and self.counts(table):
                yield key, table, field

    def _put_all(self, document: Mapping[str, Any], source: str, folder: Path) -> None:
        for key, value in _flat(document, ""):
            self._store(self._require_key(key, source), value, source, folder)

    def _store(self, key: str, value: Any, source: str, folder: Path | None = None) -> None:
        if key in self._keys:
            field = self._keys[key][1]
            value = _convert(field, value, folder)
            if not field.takes(value):
                found = f"{_source_name(key, source)} is {value!r}, expected {field.expectation(value)}"
                found += did_you_mean(str(value), field.choices)
                raise UsageError(use_toml_words(found))
        self._values[key], self._sources[key] = value, source

    def _require_key(self, key: str, source: str) -> str:
        own = self.layout.own_table
        if key in self._keys or (own and key.startswith(f"{own}.")):
            return key
        path, _, last = key.rpartition(".")
        name = _source_name(key, source)
        tables = {one.path for one in self.layout.tables}
        if key in tables:
            raise UsageError(f"{name}: it is a table, [{key}]; give one of its keys")
        if path in self._keys:
            raise UsageError(f"{name}: {path} is a value, no table")
        same = [one for one in self._keys if one.rpartition(".")[2] == last]
        meant = f"; did you mean {', '.join(same)}?" if same else did_you_mean(key, [*self._keys, *tables])
        raise UsageError(f"{name}: there is no such key{meant or f'; see `phonograd config {self.layout.command}`'}")

    def _put_short(self, key: str, text: str) -> None:
        """Put a value of the table that is chosen within the one that is named: strategy.X is strategy.fedatt.X."""
        path, _, last = key.rpartition(".")
        same = [one for one in self._keys if one.startswith(f"{path}.") and one.rpartition(".")[2] == last]
        inner = [whole for whole in same if self.counts(self._keys[whole][0])]
        own = self.layout.own_table
        if not inner and self._names_own and path == own.rpartition(".")[0]:
            inner = [join_key(own, last)]
        if same and not inner:
            raise UsageError(self._refusal(_source_name(key, SET), *(self._keys[one][0] for one in same)))
        whole = inner[0] if inner else self._require_key(key, SET)
        self._store(whole, self._parse(whole, text), SET)

    def _parse(self, key: str, text: str) -> Any:
        """The value of an assignment: TOML, or text as it stands."""
        field = self._keys[key][1] if key in self._keys else None
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        if field is not None and field.kind in (str, Path) and not isinstance(value, str | list):
            value = text
        return value

    def _refuse_ignored(self) -> None:
        for key, source in self._sources.items():
            if key not in self._keys or self.counts(table := self._keys[key][0]):
                continue
            if source.startswith("--"):
                raise UsageError(self._refusal(_source_name(key, source), table))
            # A file whose choice was forgotten would run without what it asks for, such as privacy.
            choice, values = table.chosen_by or ("", ())
            if table.used and table.path.rpartition(".")[2] in values and choice not in self._sources:
                raise UsageError(self._refusal(f"{source}: [{table.path}]", table))
        own = self.layout.own_table
        if any(self._sources[join_key(own, name)] == SET for name in self.own) and not self._names_own:
            raise UsageError(f"{own}: expected with {self.layout.own} MODULE:CLASS, found {self.get(self.layout.own)}")

    def _refusal(self, name: str, *tables: Table) -> str:
        """Tell with which choice a key or table counts."""
        choices = [one.chosen_by for one in tables if one.used and one.chosen_by is not None]
        if not choices:
            return f"{name}: `phonograd {self.layout.command}` does not use it"
        key = self.name_of(choices[0][0])
        values = [value for _, values in choices for value in values]
        if values == [GIVEN]:
            return f"{name}: expected with {key}, which is not given"
        told = " or ".join(map(_toml_word, values))
        return f"{name}: expected with {key} {told}, found {_toml_word(self.get(choices[0][0]))}"

    def _with_keys(self, message: str) -> str:
        """The message with a key or an option for each field in backticks; the file before one that it gives."""
        names = self.names()
        first = _NAMED.search(message)
        named = use_toml_words(_NAMED.sub(lambda found: names.get(found[1], found[0]), message))
        keys = {field.name: key for key, (table, field) in self._keys.items() if self.counts(table)}
        source = self._sources.get(keys.get(first[1], ""), "--") if first else "--"
        return named if source.startswith("--") else f"{source}: {named}"


def _source_name(key: str, source: str) -> str:
    if source == SET:
        return f"{SET} {key}"
    return source if source.startswith("--") else f"{source}: {key}"


def _document(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file}: expected UTF-8, found byte {error.object[error.start]:#x}; save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: expected TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"{file}: cannot read: {error.strerror}") from error


def _flat(document: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        whole = join_key(path, key)
        if isinstance(value, dict):
            yield from _flat(value, whole)
        else:
            yield whole, value


def _assignment(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip() or not value.strip():
        raise UsageError(f"{SET} {text}: expected KEY=VALUE")
    return key.strip(), value.strip()


def _convert(field: Field, value: Any, folder: Path | None) -> Any:
    """The value as the field has it: paths relative to the file's folder, whole numbers as numbers, one as a list."""
    if field.many:
        values = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert_one(field, one, folder) for one in values)
    return _convert_one(field, value, folder)


def _convert_one(field: Field, value: Any, folder: Path | None) -> Any:
    if isinstance(value, str) and value in (*field.choices, field.none_word):
        return None if value == field.none_word else value
    if field.path_unless is not None and isinstance(value, str) and value not in ("", field.path_unless):
        return str(((folder or Path()) / value).absolute())
    if field.kind is Path and isinstance(value, str) and value:
        return Path(value) if folder is None else folder / value
    return float(value) if field.kind is float and type(value) is int else value


def _place(document: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        document = document.setdefault(part, {})
    document[last] = value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return str(value.absolute()) if isinstance(value, Path) else value


def use_toml_words(message: str) -> str:
    """Write true, false and none in a message as files do, where it says what a setting is or has to be."""
    return _PYTHON_WORD.sub(lambda found: found[0].lower(), message)


def _toml_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
