"""Whether a phone is ready."""

from dataclasses import dataclass

from phonograd.android_harness.adb.states import Problem
from phonograd.android_harness.phones.facts import PhoneFacts

THERMAL_STATUSES = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
# What a run with the 2x650 model needs in /data/local/tmp: its 183 MB, the program, and what stays free for Android.
FULL_SIZE_BYTES = 200_000_000


@dataclass(frozen=True)
class Readiness:
    """The requirements of a phone. A requirement is skipped if the phone does not report the value.

    `min_battery_percent` also holds on a charger: a computer's USB port delivers less power than training draws, and
    phones lower their clocks when the battery is low. `min_free_bytes` is the free space in /data/local/tmp; None: no
    requirement.
    """

    min_battery_percent: int = 20
    max_thermal_status: int = 1
    min_free_bytes: int | None = None
    abi: str = "arm64-v8a"
    min_sdk: int = 26

    def problem(self, facts: PhoneFacts) -> Problem | None:
        """The first requirement that a phone does not meet; those that cannot be fixed come first."""
        percent, free = facts.battery.percent, facts.free_bytes
        if facts.abi is not None and facts.abi != self.abi:
            return Problem(f"it runs {facts.abi} programs; {self.abi} is needed", "use a 64-bit Arm phone")
        if facts.sdk is not None and facts.sdk < self.min_sdk:
            android = f"Android {facts.android or '?'} (API level {facts.sdk})"
            return Problem(
                f"it has {android}; level {self.min_sdk} is needed", "update it, or use a phone with Android 8 or later"
            )
        if self.min_free_bytes is not None and free is not None and free < self.min_free_bytes:
            return Problem(
                f"it has {free / 1e6:,.0f} MB of free space; {self.min_free_bytes / 1e6:,.0f} MB is needed",
                "free space on it (Settings, Storage)",
            )
        if percent is not None and percent < self.min_battery_percent:
            return Problem(
                f"its battery is at {percent} %; {self.min_battery_percent} % is needed, even on a charger",
                "charge it first",
            )
        if facts.thermal_status is not None and facts.thermal_status > self.max_thermal_status:
            thermal, limit = (
                THERMAL_STATUSES[min(status, 6)] for status in (facts.thermal_status, self.max_thermal_status)
            )
            return Problem(f"it is hot: thermal status {thermal}, expected {limit} or less", "let it cool down")
        return None


DEFAULT_READINESS = Readiness()
