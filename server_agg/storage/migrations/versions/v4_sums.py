"""Version 4: sums of updates and traffic that the database keeps, and what reports read of closed rounds."""

from alembic import op

from phonograd.server_agg.storage import summing
from phonograd.server_agg.storage.tables import Base

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add them, and sum up all rows.

    As they are today: all of this is made of other rows, so a revision that changes it can drop it and do the same.
    """
    tables = ("update_sums", "traffic_sums", "round_figures")
    Base.metadata.create_all(op.get_bind(), [Base.metadata.tables[name] for name in tables])
    summing.begin(op.get_bind())
