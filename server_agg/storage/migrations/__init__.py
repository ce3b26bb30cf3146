"""The ledger's schema version, and the migrations from earlier releases, by Alembic.

Every change of `tables.py` needs a revision in `versions/`, whose number is the next one: a new ledger is created from
the tables, an older one migrated, and both must have the same columns (tests/server_agg/test_migrations.py).
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.storage.tables import Base

FIRST_VERSION = 2  # of release 0.1.0
VERSION = 11
VERSION_TABLE = "ledger_version"  # not Alembic's usual name: the database may have tables of others


def version_of(connection: Connection) -> int:
    """The version of a ledger; 0 if it has no tables yet."""
    if inspect(connection).has_table(VERSION_TABLE):
        return int(connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) or 0)
    if connection.dialect.name == "sqlite":  # up to version 7
        return int(connection.scalar(text("PRAGMA user_version")) or 0)
    return 0


def prepare(connection: Connection, name: str, create: bool) -> bool:
    """Create the tables of a ledger, or migrate it to VERSION, within the caller's transaction: all steps or none.

    Returns whether it was migrated. name: the ledger's, for messages; create: whether it may be new. Raises
    StorageError, with nothing changed, for an unknown version.
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
    if found < FIRST_VERSION and not (found == 0 and create):
        raise StorageError(
            f"{name}: expected ledger version {FIRST_VERSION} to {VERSION}, found {found}; "
            "choose an empty `state` folder"
        )
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes |= {"connection": connection, "version_table": VERSION_TABLE}
    if found == 0:
        Base.metadata.create_all(connection)
        command.stamp(config, "head")
    elif found < VERSION or not inspect(connection).has_table(VERSION_TABLE):
        command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":  # where releases before version 8 look, and refuse a newer one
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
    return found > 0
