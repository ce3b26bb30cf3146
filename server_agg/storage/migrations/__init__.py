"""The ledger's schema version, and the migrations from earlier releases, by Alembic.

Once there is a release, every change of `tables.py` needs a revision in `versions/`, whose number is the next one: a
new ledger is created from the tables, an older one migrated, and both must have the same columns.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage.databases import add_trigger
from phonograd.server_agg.storage.tables import Base, RoundFigures, Traffic, Update

ROUNDS_OF = {"INSERT": "NEW.round", "UPDATE": "OLD.round, NEW.round", "DELETE": "OLD.round"}

FIRST = 12  # the first release's: checkouts before it counted to 11, and nothing migrates what they made
VERSION = FIRST
VERSION_TABLE = "ledger_version"  # not Alembic's usual name: the database may have tables of others
REVISIONS = Path(__file__).parent


def version_of(connection: Connection) -> int:
    """The version of a ledger; 0 if it has no tables yet, 1 if it has tables without a version."""
    tables = inspect(connection)
    if not tables.has_table(VERSION_TABLE):
        return int(tables.has_table("rounds"))
    return int(connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) or 0)


def prepare(connection: Connection, name: str, create: bool) -> None:
    """Create the tables of a ledger, or migrate it to VERSION, within the caller's transaction: all steps or none.

    name: the ledger's, for messages; create: whether it may be new. Raises StorageError, with nothing changed, for an
    unknown version.
    """
    # Only here: importing Alembic takes longer than opening a ledger.
    from alembic import command
    from alembic.config import Config

    found = version_of(connection)
    if found > VERSION:
        raise StorageError(
            f"{name}: expected ledger version {VERSION} or earlier, found {found}, written by a newer phonograd; "
            "update phonograd, or choose an empty `state` folder"
        )
    if 0 < found < FIRST:
        raise StorageError(
            f"{name}: expected a ledger of a release (version {FIRST} or later), found version {found}, made by a "
            "phonograd from before the first release; choose an empty `state` folder, or an empty database, and start "
            "again"
        )
    if found == 0 and not create:
        raise StorageError(
            f"{name}: expected a ledger, found none in it; give the `state` folder or the `ledger` of a server"
        )
    config = Config()
    config.set_main_option("script_location", str(REVISIONS))
    config.attributes |= {"connection": connection, "version_table": VERSION_TABLE}
    if found == 0:
        Base.metadata.create_all(connection)
        _count_changes(connection)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")


def _count_changes(connection: Connection) -> None:
    """Have the database count changes of closed rounds in `RoundFigures.changes`, so that no writer can forget.

    Those of the open round are not: a row that every transaction changes would make PostgreSQL slow while a backup
    reads.
    """
    for table in (Update, Traffic):
        for event, rounds in ROUNDS_OF.items():
            body = f"UPDATE {RoundFigures.__tablename__} SET changes = changes + 1 WHERE round IN ({rounds});"
            add_trigger(connection, table.__tablename__, event, body)
