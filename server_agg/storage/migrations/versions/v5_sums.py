"""Version 5: what reports and metrics read of closed rounds is kept."""

from alembic import op

from phonograd.server_agg.storage import changes
from phonograd.server_agg.storage.tables import Base

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Add the tables, empty: the next reader fills them. So a later revision may drop them and do the same."""
    tables = ("update_sums", "traffic_sums", "round_figures")
    Base.metadata.create_all(op.get_bind(), [Base.metadata.tables[name] for name in tables])
    changes.count(op.get_bind())
