"""What the sections of the page of results share: tables, and lines about machines and contestants."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MB = 1e6


def table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table. columns: heading to alignment, "l" or "r"."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---' if side == 'l' else '---:' for side in columns.values())}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def environment_line(document: Mapping[str, Any]) -> str:
    """The environment line of a section."""
    found = document["environment"]
    return (
        f"{found['cpu']} ({', '.join(found['features'])}), {found['cores']} cores, {found['system']}, "
        f"Python {found['python']}" + (f"; {document['threads']} threads." if "threads" in document else ".")
    )


def versioned(name: str, versions: Mapping[str, str], *more: str) -> str:
    """A contestant's name with its packages' versions and what else identifies it."""
    own = [*(f"{package} {version}" for package, version in versions.items() if package != "numpy"), *more]
    return f"{name} ({', '.join(own)})" if own else name


def or_dash(value: float | None, form: str) -> str:
    """A figure, or a dash for one that is not there."""
    return "-" if value is None else form.format(value)


def remarks(document: Mapping[str, Any]) -> Iterator[str]:
    """Lines after a table of contestants: who was left out and why, and whose results disagree."""
    if document["left_out"]:
        yield ""
    for name, reason in document["left_out"].items():
        yield f"Left out: {name} ({reason})."
    for line in document["disagreements"]:
        yield f"They disagree: {line}."
