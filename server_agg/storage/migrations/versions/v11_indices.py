"""Version 11: indices for uploads to a ledger of millions of updates."""

from alembic import op

revision = "11"
down_revision = "10"


def upgrade() -> None:
    """Find updates by phone, and count those of a round, without a look at the others."""
    op.create_index("updates_of_phone", "updates", ["phone", "state"])
    op.create_index("updates_of_round", "updates", ["round", "state", "phone"])
    op.drop_index("ix_updates_round", "updates")
