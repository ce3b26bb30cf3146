"""Version 1: the first one. Its tables are those that `tables.py` has; a new ledger is made from them, and stamped."""

revision = "1"
down_revision = None


def upgrade() -> None:
    """Nothing came before it."""
