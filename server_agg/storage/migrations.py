"""The ledger's version, and the steps from what earlier releases wrote to what this one reads.

A change of `tables.py` adds a step here: new ledgers are made from the tables, older ones by the steps, and both must
come to the same columns (tests/server_agg/test_migrations.py).
"""

from pathlib import Path

from sqlalchemy import Connection, text

from phonograd.device_runtime.base.errors import StorageError

FIRST_VERSION = 2  # what 0.1.0 wrote

OPEN_AND_EMPTY = (
    "closed_at IS NULL AND NOT EXISTS (SELECT 1 FROM updates WHERE updates.round = number AND state = 'accepted')"
)
# Each step's SQL statements take a ledger to the next version. A step that was released is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE rounds ADD COLUMN reason VARCHAR",),  # 3: why a round failed
    (  # 4: bytes that a kill kept from being counted; an epsilon that is not finite is none
        "UPDATE updates SET received_bytes = length WHERE state = 'accepted' AND received_bytes < length",
        """INSERT INTO traffic (round, phone, kind, requests, up_header_bytes, up_body_bytes, down_header_bytes,
                                down_body_bytes)
           SELECT round, phone, 'upload', 0, 0, SUM(received_bytes), 0, 0 FROM updates WHERE received_bytes > 0
           GROUP BY round, phone
           ON CONFLICT DO UPDATE SET up_body_bytes = MAX(up_body_bytes, excluded.up_body_bytes)""",
        "UPDATE rounds SET epsilon = NULL WHERE epsilon > 1e300",
        "UPDATE rounds SET epsilon_rdp = NULL WHERE epsilon_rdp > 1e300",
    ),
    (  # 5: the open round may have drawn its phones at another probability than it has now: it is drawn again
        f"DELETE FROM selected WHERE round IN (SELECT number FROM rounds WHERE {OPEN_AND_EMPTY})",
        f"UPDATE rounds SET population = 0 WHERE {OPEN_AND_EMPTY}",
    ),
    # 6: keys lie in files, where deleting deletes; the open round draws another, as none of its noise is published
    ("ALTER TABLE rounds DROP COLUMN noise_key",),
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
            "update phonograd, or choose an empty `state` folder"
        )
    if found < FIRST_VERSION:
        raise StorageError(
            f"{path}: ledger version {FIRST_VERSION} to {VERSION} expected, found {found}; "
            "choose an empty `state` folder"
        )
    for step in STEPS[found - FIRST_VERSION :]:
        for statement in step:
            connection.execute(text(statement))
    set_version(connection, VERSION)
