"""Changes to the rows of a round whose sums are kept are counted by the database itself, so that no writer can forget.

Those of the open round are not: a row that every transaction changes would make PostgreSQL slow while a backup reads.
"""

from sqlalchemy import Connection

from phonograd.server_agg.storage.databases import add_trigger
from phonograd.server_agg.storage.tables import RoundFigures, Traffic, Update

ROUNDS_OF = {"INSERT": "NEW.round", "UPDATE": "OLD.round, NEW.round", "DELETE": "OLD.round"}


def count(connection: Connection) -> None:
    """Have the database count from now on, in `RoundFigures.changes`."""
    for table in (Update, Traffic):
        for event, rounds in ROUNDS_OF.items():
            body = f"UPDATE {RoundFigures.__tablename__} SET changes = changes + 1 WHERE round IN ({rounds});"
            add_trigger(connection, table.__tablename__, event, body)
