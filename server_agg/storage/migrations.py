"""The ledger's schema version, and the migrations from earlier releases.

Every change of `tables.py` needs a step here: a new ledger is created from the tables, an older one migrated, and both
must have the same columns (tests/server_agg/test_migrations.py).
"""

from pathlib import Path

from sqlalchemy import Connection, text

from phonograd.device_runtime.base.errors import StorageError

FIRST_VERSION = 2  # of release 0.1.0

OPEN_AND_EMPTY = (
    "closed_at IS NULL AND NOT EXISTS (SELECT 1 FROM updates WHERE updates.round = number AND state = 'accepted')"
)
# The SQL statements of each step migrate a ledger to the next version. A released step is never changed.
STEPS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE rounds ADD COLUMN reason VARCHAR",),  # 3: why a round failed
    (  # 4: count bytes that a kill left uncounted; an infinite epsilon becomes null
        "UPDATE updates SET received_bytes = length WHERE state = 'accepted' AND received_bytes < length",
        """INSERT INTO traffic (round, phone, kind, requests, up_header_bytes, up_body_bytes, down_header_bytes,
                                down_body_bytes)
           SELECT round, phone, 'upload', 0, 0, SUM(received_bytes), 0, 0 FROM updates WHERE received_bytes > 0
           GROUP BY round, phone
           ON CONFLICT DO UPDATE SET up_body_bytes = MAX(up_body_bytes, excluded.up_body_bytes)""",
        "UPDATE rounds SET epsilon = NULL WHERE epsilon > 1e300",
        "UPDATE rounds SET epsilon_rdp = NULL WHERE epsilon_rdp > 1e300",
    ),
    (  # 5: the open round's phones may be sampled at an earlier probability: sample them again
        f"DELETE FROM selected WHERE round IN (SELECT number FROM rounds WHERE {OPEN_AND_EMPTY})",
        f"UPDATE rounds SET population = 0 WHERE {OPEN_AND_EMPTY}",
    ),
    # 6: noise keys move to files, which can be overwritten; the open round gets a new key, its noise is unpublished
    ("ALTER TABLE rounds DROP COLUMN noise_key",),
    (  # 7: rounds whose model takes minutes
        "ALTER TABLE rounds ADD COLUMN transfer VARCHAR",
        "ALTER TABLE rounds ADD COLUMN closing_at DOUBLE",
    ),
)

VERSION = FIRST_VERSION + len(STEPS)


def version_of(connection: Connection) -> int:
    """The version of a ledger; 0 if it has no tables yet."""
    return int(connection.scalar(text("PRAGMA user_version")) or 0)


def set_version(connection: Connection, version: int) -> None:
    """Store the version, within the caller's transaction."""
    connection.execute(text(f"PRAGMA user_version = {version}"))


def migrate(connection: Connection, path: Path) -> None:
    """Migrate the ledger at `path` to VERSION within the caller's transaction: all steps or none.

    Raises StorageError, with nothing changed, for an unknown version.
    """
    found = version_of(connection)
    if found > VERSION:
        raise StorageError(
            f"{path}: expected ledger version {VERSION} or earlier, found {found}, written by a newer phonograd; "
            "update phonograd, or choose an empty `state` folder"
        )
    if found < FIRST_VERSION:
        raise StorageError(
            f"{path}: expected ledger version {FIRST_VERSION} to {VERSION}, found {found}; "
            "choose an empty `state` folder"
        )
    for step in STEPS[found - FIRST_VERSION :]:
        for statement in step:
            connection.execute(text(statement))
    set_version(connection, VERSION)
