"""Version 3: a run of dp-ftrl, which of its rounds each one is, the models' noise buffers; several servers' noise."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add them; no earlier round was of a run."""
    whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("rounds", sa.Column("run", sa.String))
    op.add_column("rounds", sa.Column("run_step", whole))
    op.add_column("models", sa.Column("buffers_sha256", sa.String(64)))
    op.add_column("models", sa.Column("buffers_seal", sa.String(64)))
    op.add_column("rounds", sa.Column("noise_half", sa.String(64)))
