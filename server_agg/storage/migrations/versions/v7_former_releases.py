"""Version 7: the ledgers of releases up to this one, which counted versions in SQLite's user_version."""

from alembic import op

revision = "7"
down_revision = None

OPEN_AND_EMPTY = (
    "closed_at IS NULL AND NOT EXISTS (SELECT 1 FROM updates WHERE updates.round = number AND state = 'accepted')"
)
# The SQL statements of each step migrate a ledger to the next version, from version 2 on.
STEPS: tuple[tuple[str, ...], ...] = (
    ("ALTER TABLE rounds ADD COLUMN reason VARCHAR",),  # 3: why a round failed
    (  # 4: count bytes that a kill left uncounted; an infinite epsilon becomes null
        "UPDATE updates SET received_bytes = length WHERE state = 'accepted' AND received_bytes < length",
        """INSERT INTO traffic (round, phone, kind, requests, up_header_bytes, up_body_bytes, down_header_bytes,
                                down_body_bytes)
           SELECT round, phone, 'upload', 0, 0, SUM(received_bytes), 0, 0 FROM updates WHERE received_bytes > 0
           GROUP BY round, phone
           ON CONFLICT DO UPDATE SET up_body_bytes = MAX(up_body_bytes, excluded.up_body_bytes)""",
        "UPDATE rounds SET epsilon = NULL WHERE epsilon > 1e300",
        "UPDATE rounds SET epsilon_rdp = NULL WHERE epsilon_rdp > 1e300",
    ),
    (  # 5: the open round's phones may be sampled at an earlier probability: sample them again
        f"DELETE FROM selected WHERE round IN (SELECT number FROM rounds WHERE {OPEN_AND_EMPTY})",
        f"UPDATE rounds SET population = 0 WHERE {OPEN_AND_EMPTY}",
    ),
    # 6: noise keys move to files, which can be overwritten; the open round gets a new key, its noise is unpublished
    ("ALTER TABLE rounds DROP COLUMN noise_key",),
    (  # 7: rounds whose model takes minutes
        "ALTER TABLE rounds ADD COLUMN transfer VARCHAR",
        "ALTER TABLE rounds ADD COLUMN closing_at DOUBLE",
    ),
)


def upgrade() -> None:
    """Migrate a ledger of version 2 to 6; one of version 7 has these columns."""
    found = op.get_bind().exec_driver_sql("PRAGMA user_version").scalar_one()
    for step in STEPS[found - 2 :]:
        for statement in step:
            op.execute(statement)
