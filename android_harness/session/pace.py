"""How hard a phone works: the settings `duty` and `nice` of phonograd-phone train."""

from phonograd.device_runtime.base.errors import UsageError

LEAST_PRIORITY = 19


def require_pace(duty: float | None, nice: int | None) -> None:
    """Raise UsageError for an impossible share of busy time or nice value; None: phonograd-phone's default."""
    if duty is not None and not 0 < duty <= 1:
        raise UsageError(f"`duty` is {duty}, expected more than 0 and at most 1")
    if nice is not None and not 0 <= nice <= LEAST_PRIORITY:
        raise UsageError(f"`nice` is {nice}, expected 0 to {LEAST_PRIORITY}")
