"""The layout of a command's configuration file: which table has which fields of which settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from phonograd.device_runtime.base.settings import Field, Settings, fields_of

# Among the values with which a table counts: any class of the user's; any value at all.
MODULE_CLASS, GIVEN = "MODULE:CLASS", "VALUE"


@dataclass(frozen=True)
class Table:
    """Fields of one class of settings in one table of the file; several may share a path.

    path: such as `strategy.dp-fedavg`; "": the top of the file. keys: the field of each key. about: a comment above it.
    chosen_by: the key whose value decides whether the table counts, and the values with which it does; None: always.
    used: False for what a file may have for other commands.
    """

    path: str
    kind: type[Settings]
    keys: Mapping[str, str]
    about: str = ""
    chosen_by: tuple[str, tuple[object, ...]] | None = None
    used: bool = True

    def fields(self) -> Iterator[tuple[str, Field]]:
        """Each key's whole name, such as `rounds.late`, and its field."""
        declared = fields_of(self.kind)
        for key, name in self.keys.items():
            yield join_key(self.path, key), declared[name]


def table(
    path: str,
    kind: type[Settings],
    *names: str,
    about: str = "",
    chosen_by: tuple[str, tuple[object, ...]] | None = None,
    **renamed: str,
) -> Table:
    """A table of these fields; none named: all of them. renamed: a field, by the key that it has here."""
    fields = names or (() if renamed else tuple(fields_of(kind)))
    return Table(path, kind, renamed | {name: name for name in fields}, about, chosen_by)


def mark_unused(table: Table) -> Table:
    """The table of another command, which a file may have; its values are read by none here."""
    return replace(table, used=False)


@dataclass(frozen=True)
class Layout:
    """A command's file.

    command: as it is called, such as `privacy audit`. tables: in the order of the file. flags: keys that are options
    too, with the option's name where it is not the key's last part; a name without dashes is an argument's. own: the
    key that may name the user's class in place of one of `known`; its settings are in the table `own` beside it.
    """

    command: str
    tables: tuple[Table, ...]
    flags: Mapping[str, str] = field(default_factory=dict)
    own: str = ""
    known: tuple[str, ...] = ()

    def keys(self) -> dict[str, tuple[Table, Field]]:
        """Each key of the file by its whole name."""
        return {key: (one, declared) for one in self.tables for key, declared in one.fields()}

    @property
    def own_table(self) -> str:
        """The path of the table with settings of the user's class; "" without one."""
        return f"{self.own.rpartition('.')[0]}.own" if self.own else ""

    def option(self, key: str) -> str:
        """The option of a key that is one, such as `--late`."""
        return self.flags[key] or f"--{key.rpartition('.')[2].replace('_', '-')}"


def join_key(path: str, key: str) -> str:
    """The whole name of a table's key."""
    return f"{path}.{key}" if path else key
