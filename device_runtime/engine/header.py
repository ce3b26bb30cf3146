"""phonograd.h as ctypes types: the structs and functions of the C ABI are declared there alone."""

import ctypes
import functools
import re
from collections.abc import Mapping
from typing import Any

from phonograd.device_runtime.native_build import NATIVE

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
_STRUCT = re.compile(r"typedef struct (pg_\w+) \{(.*?)\} \1;", re.DOTALL)
_FUNCTION = re.compile(r"PG_API ([^;]*?)(pg_\w+)\((.*?)\);", re.DOTALL)
_CALLBACK = re.compile(r"(\w+) \(\*(\w+)\)\((.*)\)", re.DOTALL)


@functools.cache
def _declarations() -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text("utf-8"), flags=re.DOTALL)


@functools.cache
def structs() -> Mapping[str, Any]:
    """The structs by name. Fields that begin with `size` have that already."""
    found: dict[str, Any] = {}
    for name, body in _STRUCT.findall(_declarations()):
        fields = [field for line in body.split(";") if line.strip() for field in _fields(line.strip(), found)]
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def new(name: str, **fields: object) -> Any:
    """A struct with these fields and its size; all others are zero."""
    kind = structs()[name]
    sized = {"size": ctypes.sizeof(kind)} if kind._fields_[0][0] == "size" else {}
    return kind(**sized, **fields)


@functools.cache
def functions() -> Mapping[str, tuple[Any, tuple[Any, ...]]]:
    """Result and arguments of each function by its name. A c_int result is a pg_status."""
    return {
        name: (_type(result), _arguments(arguments)) for result, name, arguments in _FUNCTION.findall(_declarations())
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


def _arguments(text: str) -> tuple[Any, ...]:
    return () if text.strip() == "void" else tuple(_type(argument.rpartition(" ")[0]) for argument in text.split(","))


def _type(spelled: str) -> Any:
    """A C type: numbers as they are, text as c_char_p, any other pointer as an address."""
    text = " ".join(spelled.replace("*", " * ").split())
    if text == "const char *":
        return ctypes.c_char_p
    return _NUMBERS.get(text, ctypes.c_void_p)
