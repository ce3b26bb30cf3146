"""Write and strictly read the JSON document of a phone bench; result.py declares its fields."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from phonograd.android_harness.errors import ReportError
from phonograd.android_harness.report.compare import Comparison
from phonograd.android_harness.report.summary import PhoneSummary, summaries
from phonograd.android_harness.result import SCHEMA, SCHEMA_VERSION, PhoneBenchReport
from phonograd.device_runtime.base.documents import (
    FieldError,
    Record,
    about,
    document_of,
    parse,
    read,
    require_json,
    schemas,
)
from phonograd.device_runtime.base.files import write_bytes


class DocumentHead(Record, frozen=True):
    """The document's fields before those of the report."""

    schema: Annotated[Literal["phonograd.phone-bench"], about("What this document is")]
    schema_version: Annotated[
        Literal[5],
        about("Version of this schema; it changes when a field is added, removed or changes its meaning"),
    ]
    summary: Annotated[
        tuple[PhoneSummary, ...],
        about("The figures of each phone and output layer, in the order of phones"),
    ]
    comparison: Annotated[Comparison | None, about("Comparison with the report given by --compare; null without it")]
    config: Annotated[
        Mapping[str, Any],
        about("The configuration file of the run, which `phonograd config phone-bench --from` prints"),
    ]


def to_document(
    report: PhoneBenchReport, comparison: Comparison | None = None, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The report as JSON values. config: the command's, if one made it.

    Raises ReportError for NaN and infinity, and for settings that JSON can't represent.
    """
    try:
        require_json(report.settings, "settings")
        summary = tuple(summary for _, summary in summaries(report))
        head = DocumentHead(SCHEMA, SCHEMA_VERSION, summary, comparison, config or {})
        return {**document_of(head), **document_of(report)}
    except FieldError as error:
        raise ReportError(str(error)) from error


def from_document(document: Any) -> PhoneBenchReport:
    """The report in a document. Its summary, comparison and config are ignored: they say nothing of the phones.

    Raises ReportError for another schema or version, and for a missing, wrong or unknown field.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ReportError(f"not a phone-bench report: expected a JSON object with schema {SCHEMA!r}, found {found!r}")
    version = document.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        cure = "run the bench again"
        if type(version) is int and version > SCHEMA_VERSION:
            cure = "a newer phonograd wrote it: upgrade phonograd"
        raise ReportError(f"schema_version: expected {SCHEMA_VERSION}, found {version!r}; {cure}")
    own = {name: value for name, value in document.items() if name not in DocumentHead.__struct_fields__}
    try:
        return read(PhoneBenchReport, own)
    except FieldError as error:
        raise ReportError(
            f"{error}; if it was edited, or written by another version of phonograd, run the bench again"
        ) from error


def read_report(path: Path) -> PhoneBenchReport:
    """Read a report from a file. Raises ReportError as from_document does, and if the file cannot be read."""
    try:
        return from_document(parse(path.read_bytes()))
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror or error}") from error
    except FieldError as error:
        raise ReportError(f"{path}: {error}; give what phone-bench --json wrote") from error


def write_report(
    path: Path,
    report: PhoneBenchReport,
    comparison: Comparison | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Write the document, whole or not at all. Raises ReportError as to_document does, and StorageError."""
    write_bytes(path, json.dumps(to_document(report, comparison, config), indent=2, allow_nan=False).encode() + b"\n")


@functools.cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema (2020-12) of the document."""
    definitions = schemas(DocumentHead, PhoneBenchReport)
    parts = [definitions.pop(kind.__name__) for kind in (DocumentHead, PhoneBenchReport)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:phonograd:phone-bench:{SCHEMA_VERSION}",
        "title": "phonograd phone-bench",
        "description": "What `phonograd phone-bench --json` writes. Seconds are wall time on the phone unless a "
        "description says otherwise. All numbers are finite and between -2^53 and 2^53.",
        "type": "object",
        "properties": {name: field for part in parts for name, field in part["properties"].items()},
        "required": [name for part in parts for name in part["required"]],
        "additionalProperties": False,
        "$defs": definitions,
    }
