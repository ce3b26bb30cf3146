"""Stands in for a peer of secure aggregation: its figures, of which Flower's for a large cohort are counted up."""

import os
from pathlib import Path


def run(job):
    whole = job.phones <= job.settings.get("whole", job.phones)
    assert Path(job.base).exists() and Path(job.folder).is_dir()
    return {
        "phone_seconds": {"encoding": 1.0, "keys": 0.25, "shares": 0.5, "update": 2.0, "unmasking": 0.125},
        "up_bytes": {"keys": 400, "shares": 800, "update": 3e6, "unmasking": 900},
        "down_bytes": {"keys": 4100, "shares": 800, "unmasking": 100},
        "server_seconds": {"messages": 0.5, "adding": 1.5, "unmasking": 10.0 * (job.dead + 1)},
        "own_rss_bytes": 7e6,
        "phones_run": job.phones - job.dead if whole else 1,
        "difference": (0.5 if os.environ.get("FAKE_SECAGG") == "off" else 1e-7) if whole else None,
        "tolerance": 1e-6,
        "counted": [] if whole else ["unmasking", "memory"],
        "versions": {"fake": "1"},
    }
