"""The JSON document of a phone bench, written and read strictly; docs/phone-bench.md has its fields.

`phone-bench.schema.json` beside this file is its JSON Schema: types are the dataclasses', bounds and descriptions the
schema's, and a test holds the two together.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from phonograd.android_harness.errors import ReportError
from phonograd.android_harness.report.compare import Comparison
from phonograd.android_harness.report.decoding import decode, finite
from phonograd.android_harness.report.summary import summarise
from phonograd.android_harness.result import SCHEMA, SCHEMA_VERSION, PhoneBenchReport
from phonograd.device_runtime.base.files import write_bytes

SCHEMA_FILE = Path(__file__).with_name("phone-bench.schema.json")
# What the document has beside the report's own fields.
_HEAD = ("schema", "schema_version", "summary", "comparison")


def to_document(report: PhoneBenchReport, comparison: Comparison | None = None) -> dict[str, Any]:
    """The report as JSON values; `summary` has a row for each phone, so that scripts need no arithmetic.

    Raises ReportError for a number that JSON has not (NaN, infinity), and for settings that are no JSON.
    """
    head = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
    summary = [_json(summarise(phone, report.workload)) for phone in report.phones]
    compared = _json(comparison) if comparison else None
    return dict(finite({**head, "summary": summary, "comparison": compared, **_json(report)}, ""))


def from_document(document: Any) -> PhoneBenchReport:
    """The report of a document. Its summary and comparison are not read: they follow from the rest.

    Raises ReportError: another schema, another version, or naming the field that is missing, wrong or unknown.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ReportError(f"no phone bench: expected a JSON object with schema {SCHEMA!r}, found {found!r}")
    version = document.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        newer = type(version) is int and version > SCHEMA_VERSION
        cure = "a newer phonograd wrote it: update this one" if newer else "run the bench again"
        raise ReportError(f"schema_version: expected {SCHEMA_VERSION}, found {version!r}; {cure}")
    fields = {name: value for name, value in document.items() if name not in _HEAD}
    return decode(PhoneBenchReport, fields, {**schema()["$defs"], PhoneBenchReport.__name__: schema()}, "")


def read_report(path: Path) -> PhoneBenchReport:
    """The report in a file. Raises ReportError as from_document does, naming the file, and if it cannot be read."""
    try:
        document = json.loads(path.read_bytes(), parse_constant=_no_number)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: not JSON: {error}; give what phone-bench --json wrote") from error
    try:
        return from_document(document)
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error


def write_report(path: Path, report: PhoneBenchReport, comparison: Comparison | None = None) -> None:
    """Write the document, whole or not at all. Raises ReportError as to_document does, and StorageError."""
    write_bytes(path, json.dumps(to_document(report, comparison), indent=2, allow_nan=False).encode() + b"\n")


@functools.cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema (2020-12) of the document."""
    return dict(json.loads(SCHEMA_FILE.read_bytes()))


def _json(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists, and the numbers of cores as the strings that JSON's keys are."""
    if dataclasses.is_dataclass(value):
        return {field.name: _json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key) if isinstance(key, int) else key: _json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    return value


def _no_number(constant: str) -> NoReturn:
    raise ReportError(f"holds {constant}, which is no JSON number; the report was not written by phonograd")
