"""A configuration file as text: every key with its default, its range and what it means."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phonograd.config.layout import Layout, Table
from phonograd.config.values import Config
from phonograd.device_runtime.base.settings import Field

_WIDTH = 100


def print_file(layout: Layout, config: Config | None = None) -> str:
    """The file in TOML; `config` has the values to write in place of defaults. Keys without a value are comments."""
    values = Config(layout) if config is None else config
    lines = [f"# phonograd {layout.command} --config FILE", "# Paths are relative to this file.", ""]
    path = ""
    for table in filter(lambda one: one.used, layout.tables):
        if table.path != path:
            path = table.path
            lines += [*_comment(table.about), f"[{path}]"]
        lines += _keys(table, values)
        if path == layout.own_table and path:
            lines += [f"{name} = {_toml(value)}" for name, value in values.own.items()]
    return "\n".join(lines).rstrip() + "\n"


def _keys(table: Table, values: Config) -> Iterator[str]:
    for key, field in table.fields():
        yield from _comment(_meaning(field))
        value, last = values.get(key), key.rpartition(".")[2]
        value = (field.none_word or None) if value is None else value
        # A default path is in the current folder, where the file need not be.
        commented = value is None or (isinstance(value, Path) and value == field.default)
        line = f"{last} =" if value is None else f"{last} = {_toml(value)}"
        yield f"# {line}" if commented else line
        yield ""


def _meaning(field: Field) -> str:
    expected = field.expectation()
    plain = (field.kind in (str, bool) and not field.choices) or expected in (
        "a path",
        "a finite number",
        "a whole number",
    )
    return field.about if plain else f"{field.about} ({expected})".strip()


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value) if isinstance(value, int | float) else json.dumps(str(value), ensure_ascii=False)
