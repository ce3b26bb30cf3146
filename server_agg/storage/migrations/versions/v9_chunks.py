"""Version 9: uploads in progress whose bytes are in an object store."""

from alembic import op
from sqlalchemy import Column, Double, ForeignKey, String

from phonograd.server_agg.storage.tables import WHOLE

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """Add the table of chunks."""
    op.create_table(
        "chunks",
        Column("upload", String(32), ForeignKey("updates.id"), primary_key=True),
        Column("start", WHOLE, primary_key=True, autoincrement=False),
        Column("stop", WHOLE, nullable=False),
        Column("name", String, nullable=False),
        Column("at", Double, nullable=False),
    )
