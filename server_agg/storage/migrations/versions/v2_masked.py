"""Version 2: masked rounds: their settings, their stage, and what their phones sent."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add them; no earlier round was masked."""
    whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("rounds", sa.Column("masked", sa.String))
    op.create_table(
        "cohorts",
        sa.Column("round", whole, sa.ForeignKey("rounds.number"), primary_key=True),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("since", sa.Double, nullable=False),
        sa.Column("counts", sa.String, nullable=False),
        sa.Column("noise", sa.Double),
    )
    op.create_table(
        "messages",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("phone", sa.String(64), primary_key=True),
        sa.Column("round", whole, sa.ForeignKey("rounds.number"), nullable=False),
        sa.Column("body", sa.String, nullable=False),
    )
