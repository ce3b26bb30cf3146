"""Version 12: the first release's. A new ledger is made from `tables.py`, and stamped with the newest version."""

revision = "12"
down_revision = None


def upgrade() -> None:
    """Nothing that is migrated came before it."""
