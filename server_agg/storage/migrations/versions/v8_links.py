"""Version 8: models have links from their parents, and residuals."""

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Add their columns; the models so far have neither."""
    for column in (
        sa.Column("link_sha256", sa.String(64)),
        sa.Column("link_bytes", sa.BigInteger().with_variant(sa.Integer(), "sqlite")),
        sa.Column("residual_sha256", sa.String(64)),
        sa.Column("distance", sa.Double()),
    ):
        op.add_column("models", column)
