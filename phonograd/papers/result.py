"""What a run of an experiment measured: figures only, a value for each seed."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

from msgspec import field

from phonograd.device_runtime.base.documents import (
    Count,
    FieldError,
    Number,
    Record,
    Sha256,
    about,
    document_of,
    parse,
    read,
)
from phonograd.device_runtime.base.errors import StateError, UsageError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.papers.experiment import Rows

_FOLDER = Path(__file__).resolve().parent / "results"
_DIGITS = 6  # significant


class Result(Record, frozen=True):
    """A run of an experiment. rows, facts: for each figure the values of all seeds, in their order; units: for each of
    these seeds, the values of all users, nodes or rounds, in one order for all rows.
    """

    experiment: str
    small: bool
    seeds: tuple[Count, ...]
    texts: Annotated[str, about("which texts were used, in words")]
    settings: dict[str, Any]
    facts: Annotated[dict[str, tuple[Number, ...]], about("what else belongs to the figures, such as tokens")]
    rows: dict[str, dict[str, tuple[Number, ...]]]
    version: Annotated[str, about("of phonograd")]
    units: dict[str, dict[str, tuple[tuple[Number, ...], ...]]] = field(default_factory=dict)
    runs: Annotated[dict[str, tuple[Sha256, ...]], about("of what ran for a row, by seed: settings, model, texts")] = (
        field(default_factory=dict)
    )
    inputs: Annotated[dict[str, Sha256], about("of the files and folders that were given")] = field(
        default_factory=dict
    )
    commits: Annotated[
        tuple[str, ...], about('of the checkout, that ran parts of it, "+" for one with changes; none outside of one')
    ] = ()
    model: Annotated[dict[str, Any], about("sizes of the model that was given, and how it is trained")] = field(
        default_factory=dict
    )
    cpu: str = ""
    schema_version: Literal[1] = 1

    def of_seed(self, index: int) -> Rows:
        """The rows of one seed, by its index in `seeds`."""
        return {
            row: {figure: values[index] for figure, values in figures.items()} for row, figures in self.rows.items()
        }

    def means(self) -> Rows:
        """The rows' means over seeds."""
        return {
            row: {figure: fmean(values) for figure, values in figures.items()} for row, figures in self.rows.items()
        }


def results_folder() -> Path | None:
    """Folder of a checkout's results; None in an installed package."""
    return _FOLDER if (_FOLDER.parents[2] / "pyproject.toml").is_file() else None


def require_not_full(path: Path) -> None:
    """Raise UsageError if `path` holds the result of a full run, which a small one must not replace."""
    if path.exists() and not read_result(path).small:
        raise UsageError(
            f"{path}: holds the result of a full run, which a small one does not replace; use another file"
        )


def read_result(path: Path) -> Result:
    """Raises StateError for a damaged file."""
    try:
        return read(Result, parse(path.read_bytes()))
    except (OSError, FieldError, UnicodeError) as error:
        raise StateError(f"{path}: {error}; expected a result of phonograd reproduce") from error


def write_result(path: Path, result: Result) -> None:
    """Write a result atomically, its figures with 6 significant digits. Raises StorageError."""
    document = document_of(result)
    for part in ("facts", "rows", "units"):
        document[part] = _round(document[part])
    by_row = ("rows", "units", "runs")
    lines = [f" {_json(name)}: {_lines(value) if name in by_row else _json(value)}" for name, value in document.items()]
    write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _lines(rows: Mapping[str, Any]) -> str:
    """A line for each row, so that a diff shows which ones changed."""
    return "{\n" + ",\n".join(f"  {_json(row)}: {_json(figures)}" for row, figures in rows.items()) + "\n }"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _round(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _round(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_round(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
