"""Version 10: the bytes of TCP streams."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """Add their columns; of the requests so far they are not known."""
    for name in ("up_tcp_bytes", "down_tcp_bytes"):
        op.add_column("traffic", sa.Column(name, sa.BigInteger().with_variant(sa.Integer(), "sqlite")))
