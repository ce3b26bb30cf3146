"""Version 4: several servers' processes, and which one has an update in its sum."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add them; what no process has is folded from the store."""
    op.add_column("updates", sa.Column("process", sa.String(32)))
    op.create_table(
        "processes",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("seen_at", sa.Double, nullable=False),
        sa.Column("round", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("sha256", sa.String(64)),
    )
