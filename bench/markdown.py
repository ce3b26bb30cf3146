"""A benchmark's tables, which its command prints and the page of results has in Markdown."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MB, MS = 1e6, 1e-3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """What a column shows of a row, and how `format` writes it; text without a form is to the left."""

    value: Callable[[Row], Any]
    form: str = ""

    def cell(self, row: Row) -> str:
        """The cell of the page; a dash for what is missing."""
        value = self.value(row)
        return "-" if value is None else format(value, self.form)

    def printed_cell(self, row: Row) -> object:
        """The cell for a terminal, which formats numbers itself, except shares."""
        value = self.value(row)
        return value if isinstance(value, int | float) and "%" not in self.form else self.cell(row)


def text(key: str) -> Column:
    """A name, which is a field of the row."""
    return Column(lambda row: row[key])


def figure(key: str, form: str, unit: float = 1) -> Column:
    """A field, in `unit`; older results may lack it."""

    def value(row: Row) -> Any:
        number = row.get(key)
        return number if number is None or unit == 1 else number / unit

    return Column(value, form)


@dataclass(frozen=True)
class Table:
    """Rows of a document by headings. title: for a terminal."""

    title: str
    columns: Mapping[str, Column]
    rows: Iterable[Row]

    def markdown(self) -> str:
        """The table on a page."""
        sides = {heading: "r" if column.form else "l" for heading, column in self.columns.items()}
        return "\n".join(table(sides, [[one.cell(row) for one in self.columns.values()] for row in self.rows]))

    def printed_rows(self) -> tuple[str, list[dict[str, object]]]:
        """Title and rows, as a console prints them."""
        return self.title, [{name: one.printed_cell(row) for name, one in self.columns.items()} for row in self.rows]


def table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table. columns: heading to alignment, "l" or "r"."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---' if side == 'l' else '---:' for side in columns.values())}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def name_with_versions(name: str, versions: Mapping[str, str], *more: str) -> str:
    """A contestant's name with its packages' versions and what else identifies it."""
    own = [*(f"{package} {version}" for package, version in versions.items() if package != "numpy"), *more]
    return f"{name} ({', '.join(own)})" if own else name


def model_name(model: Row) -> str:
    """A model in a heading."""
    return f"{model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words"
