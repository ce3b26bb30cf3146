"""The ledger's version, and the steps from what earlier releases wrote to what this one reads.

A change of `tables.py` adds a step here: new ledgers are made from the tables, older ones by the steps, and both must
come to the same columns (tests/server_agg/test_migrations.py).
"""

from pathlib import Path

from sqlalchemy import Connection, text

from device_runtime.errors import StorageError

FIRST_VERSION = 2  # what 0.1.0 wrote

# Each step's SQL statements take a ledger to the next version. A step that was released is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE rounds ADD COLUMN reason VARCHAR",),  # 3: why a round failed
)

VERSION = FIRST_VERSION + len(STEPS)


def version_of(connection: Connection) -> int:
    """The version of a ledger; 0: it has no tables yet."""
    return int(connection.scalar(text("PRAGMA user_version")) or 0)


def set_version(connection: Connection, version: int) -> None:
    """Write the version down, within the caller's transaction."""
    connection.execute(text(f"PRAGMA user_version = {version}"))


def migrate(connection: Connection, path: Path) -> None:
    """Bring the ledger at `path` to VERSION, all steps or none, within the caller's transaction.

    Raises StorageError, with nothing changed, for a version that this release does not know.
    """
    found = version_of(connection)
    if found > VERSION:
        raise StorageError(
            f"{path}: ledger version {VERSION} or earlier expected, found {found}: a newer phonograd wrote it; "
            "update phonograd, or choose an empty --state folder"
        )
    if found < FIRST_VERSION:
        raise StorageError(
            f"{path}: ledger version {FIRST_VERSION} to {VERSION} expected, found {found}; "
            "choose an empty --state folder"
        )
    for step in STEPS[found - FIRST_VERSION :]:
        for statement in step:
            connection.execute(text(statement))
    set_version(connection, VERSION)
