"""Sums of updates and traffic that the database itself keeps, by triggers: whoever changes a row changes them with it.

A writer that forgot them would make every later figure wrong, and there are many. Both databases take the same body.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from phonograd.server_agg.storage.databases import add_trigger
from phonograd.server_agg.storage.tables import (
    HTTP_COUNTERS,
    TCP_COUNTERS,
    Base,
    Traffic,
    TrafficSums,
    Update,
    UpdateSums,
)


@dataclass(frozen=True)
class Summed:
    """Rows of `source`, summed in `target`. key, sums: its columns, and what a row is to them; {}: before a name."""

    source: type[Base]
    target: type[Base]
    key: Mapping[str, str]
    sums: Mapping[str, str]

    def added(self, row: str, sign: str) -> str:
        """The statement that adds a row to its sums, or takes it away."""
        table, names = self.target.__tablename__, (*self.sums, "changes")
        values = [value.format(row) for value in self.key.values()]
        values += [f"{sign}({value.format(row)})" for value in self.sums.values()]
        new = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in names)
        return (
            f"INSERT INTO {table} ({', '.join((*self.key, *names))}) VALUES ({', '.join((*values, '1'))}) "
            f"ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {new};"
        )

    def of_all(self) -> str:
        """The statement that fills an empty table."""
        names, key = (*self.key, *self.sums, "changes"), [value.format("") for value in self.key.values()]
        values = [*key, *(f"sum({value.format('')})" for value in self.sums.values()), "count(*)"]
        columns, place = ", ".join(names), self.target.__tablename__
        source = self.source.__tablename__
        return f"INSERT INTO {place} ({columns}) SELECT {', '.join(values)} FROM {source} GROUP BY {', '.join(key)}"


def _unknown(name: str) -> str:
    return f"CASE WHEN {{}}{name} IS NULL THEN 1 ELSE 0 END"


SUMMED = (
    Summed(
        Update,
        UpdateSums,
        {"round": "{}round", "state": "{}state", "codec": "coalesce({}codec, '')"},
        {
            "updates": "1",
            "length": "{}length",
            "received": "{}received_bytes",
            "requests": "{}requests",
            "late": "CASE WHEN {}base_sha256 IS NULL THEN 0 ELSE 1 END",
        },
    ),
    # Rows of traffic are never deleted.
    Summed(
        Traffic,
        TrafficSums,
        {"round": "{}round", "kind": "{}kind"},
        {name: f"{{}}{name}" for name in HTTP_COUNTERS}
        | {name: f"coalesce({{}}{name}, 0)" for name in TCP_COUNTERS}
        | {name.replace("bytes", "unknown"): _unknown(name) for name in TCP_COUNTERS},
    ),
)


def begin(connection: Connection) -> None:
    """Have the database keep the sums from now on, and sum up the rows that there are; its tables are empty."""
    for each in SUMMED:
        away, to = each.added("OLD.", "-"), each.added("NEW.", "")
        for event, body in (("INSERT", to), ("UPDATE", away + to), ("DELETE", away)):
            add_trigger(connection, each.source.__tablename__, event, body)
        connection.exec_driver_sql(each.of_all())
