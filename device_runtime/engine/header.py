"""phonograd.h as ctypes types: the structs and functions of the C ABI are declared there alone."""

import ctypes
import functools
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.native_build.targets import NATIVE

HEADER = NATIVE / "include" / "phonograd.h"
_NUMBERS = {
    "void": None,
    "pg_status": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
}
_INTEGERS = (ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t)
_STRUCT = re.compile(r"typedef struct (pg_\w+) \{(.*?)\} \1;", re.DOTALL)
_FUNCTION = re.compile(r"PG_API ([^;]*?)(pg_\w+)\((.*?)\);", re.DOTALL)
_CALLBACK = re.compile(r"(\w+) \(\*(\w+)\)\((.*)\)", re.DOTALL)


@functools.cache
def _declarations() -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text("utf-8"), flags=re.DOTALL)


@functools.cache
def structs() -> Mapping[str, Any]:
    """The structs by name. Fields that begin with `size` have that already."""
    types: dict[str, Any] = {}
    for name, body in _STRUCT.findall(_declarations()):
        fields = [field for line in body.split(";") if line.strip() for field in _fields(line.strip(), types)]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types


def new(name: str, **fields: object) -> Any:
    """A struct with these fields, as `plain` has them, and its size; all others, and those that are None, are zero."""
    made = structs()[name]()
    made.kept = fields  # arrays, for as long as their addresses
    if made._fields_[0][0] == "size":
        made.size = ctypes.sizeof(made)
    kinds = dict(made._fields_)
    for field, value in fields.items():
        if value is not None:
            setattr(made, field, plain(value, field, kinds[field]))
    return made


def plain(value: Any, name: str, kind: Any) -> Any:
    """Return what C takes: the bytes of a path or a name, the address of a dense array; all else as it is.

    Raises UsageError for a whole number that its C type can't hold, which ctypes would cut.
    """
    if kind in _INTEGERS and isinstance(value, int) and kind(value).value != value:
        raise UsageError(f"`{name}` {value}: expected a whole number that fits {8 * ctypes.sizeof(kind)} bits")
    if isinstance(value, str | os.PathLike):
        return os.fsencode(value)
    return value.ctypes.data if isinstance(value, np.ndarray) else value


class Function(NamedTuple):
    """A function's result, the types of its arguments, and by their names what makes a place for each that may be an
    output. A c_int result is a pg_status.
    """

    result: Any
    arguments: tuple[Any, ...]
    places: Mapping[str, Any]


@functools.cache
def functions() -> Mapping[str, Function]:
    """The functions by name."""
    return {
        name: Function(_type(result), _arguments(arguments), dict(map(_place, _split(arguments))))
        for result, name, arguments in _FUNCTION.findall(_declarations())
    }


def _fields(line: str, known: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields that a line of a struct declares, all of one type."""
    if callback := _CALLBACK.fullmatch(line):
        result, name, arguments = callback.groups()
        return [(name, ctypes.CFUNCTYPE(_type(result), *_arguments(arguments)))]
    spelled, names = re.fullmatch(r"((?:const )?\w+[ *]+)(.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    kind = known.get(spelled.strip()) or _type(spelled)
    return [_field(name.strip(), kind) for name in names.split(",")]


def _field(name: str, kind: Any) -> tuple[str, Any]:
    array = re.fullmatch(r"(\w+)\[(\d+)\]", name)
    return (array[1], kind * int(array[2])) if array else (name, kind)


def _split(arguments: str) -> list[str]:
    return [] if arguments.strip() == "void" else arguments.split(",")


def _arguments(text: str) -> tuple[Any, ...]:
    return tuple(_type(argument.rpartition(" ")[0]) for argument in _split(text))


def _place(argument: str) -> tuple[str, Any]:
    """An argument's name, and what makes a place for what it points to."""
    pointer, _, name = argument.strip().rpartition(" ")
    pointed = pointer.removesuffix("*")
    if pointed in structs():
        return name, functools.partial(new, pointed)
    return name, ctypes.c_void_p if pointed.endswith("*") else _type(pointed)


def _type(spelled: str) -> Any:
    text = " ".join(spelled.replace("*", " * ").split())
    if text == "const char *":
        return ctypes.c_char_p
    return _NUMBERS.get(text, ctypes.c_void_p)
