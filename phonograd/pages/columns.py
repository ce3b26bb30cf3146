"""Which columns of a table a terminal has room for, and how wide they are."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

ONE_LINE = 24  # characters; longer cells are prose, which may be cut between words
NOTHING = re.compile(r"-?|0(\.0+)?( (B|%))?")  # a cell that says nothing


@dataclass(frozen=True)
class ColumnNeeds:
    """The characters that a column takes without breaking a word, and without breaking a line; whether it is empty."""

    least: int
    best: int
    empty: bool


def column_needs(heading: str, cells: Sequence[str]) -> ColumnNeeds:
    """Measure a column. Headings may be cut between words, and so may cells of prose, but not `22.7 kB`."""
    lines = [line for cell in cells for line in cell.splitlines()]
    pieces = [piece for line in lines for piece in ([line] if cell_len(line) <= ONE_LINE else line.split())]
    return ColumnNeeds(
        max(map(cell_len, [*heading.split(), *pieces]), default=1),
        max(map(cell_len, [heading, *lines])),
        all(map(NOTHING.fullmatch, cells)),
    )


def fitting_columns(needs: Mapping[str, ColumnNeeds], width: int) -> list[str]:
    """The columns that stay: the last leave first, and before them those without anything. The first stays, and one
    more.
    """
    first, *others = needs
    stay = [first]
    for key in sorted(others, key=lambda key: needs[key].empty):
        if len(stay) == 1 or _table_width(needs[one].least for one in (*stay, key)) <= width:
            stay.append(key)
    return [key for key in needs if key in stay]


def column_widths(needs: Mapping[str, ColumnNeeds], width: int) -> dict[str, int]:
    """Share `width` among columns: what each needs, then the rest to those that lack least. If they need more, the
    widest has what is left.
    """
    widths = {key: need.least for key, need in needs.items()}
    spare = width - _table_width(widths.values())
    if spare < 0:
        widest = max(widths, key=lambda key: widths[key])
        return widths | {widest: max(1, widths[widest] + spare)}
    lacking = sorted(needs, key=lambda key: needs[key].best - needs[key].least)
    for place, key in enumerate(lacking):
        more = min(needs[key].best - widths[key], spare // (len(lacking) - place))
        widths[key] += more
        spare -= more
    return widths


def _table_width(widths: Iterable[int]) -> int:
    """The width of a table whose cells have these, with its rules and the blanks beside them."""
    return 1 + sum(3 + width for width in widths)
