"""How long tokens last, as people write it: 90d, 12h, never."""

import re

DEFAULT_LIFETIME = "90d"
# A rotated phone's old tokens go on this long, so that the phone can pick up the new one.
DEFAULT_OVERLAP = "1d"
LIFETIME_RULE = "a number and s, m, h or d (90d), 10 years at most, or never"

LIFETIME = re.compile(r"([0-9]{1,9})([smhd])\Z")
UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_SECONDS = 3650 * 86400


def lifetime_seconds(text: str) -> float | None:
    """Seconds of a lifetime such as `90d`; None for `never`. Raises ValueError for anything else."""
    if text == "never":
        return None
    match = LIFETIME.match(text)
    seconds = int(match[1]) * UNIT_SECONDS[match[2]] if match else -1
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError(f"{LIFETIME_RULE} expected, found {text[:40]!r}")
    return float(seconds)
