"""Whether work can begin on a phone."""

from dataclasses import dataclass

from phonograd.android_harness.adb.states import Trouble
from phonograd.android_harness.phones.facts import PhoneFacts

HEAT = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")


@dataclass(frozen=True)
class Readiness:
    """What a phone must have. A rule about what a phone does not tell is not held against it.

    The battery must have `battery_percent` even on a charger: a computer's USB port gives less than training draws, and
    phones that run low lower their clocks. `thermal_status` is the highest that may be before the work begins.
    `free_bytes`, those in /data/local/tmp, depend on the work: None asks for none.
    """

    battery_percent: int = 20
    thermal_status: int = 1
    free_bytes: int | None = None
    abi: str = "arm64-v8a"
    sdk: int = 26

    def trouble(self, facts: PhoneFacts) -> Trouble | None:
        """The first rule that a phone breaks; those that nothing mends come first."""
        percent, free = facts.battery.percent, facts.free_bytes
        if facts.abi is not None and facts.abi != self.abi:
            return Trouble(f"it runs {facts.abi} programs; {self.abi} is needed", "use a 64-bit Arm phone")
        if facts.sdk is not None and facts.sdk < self.sdk:
            android = f"Android {facts.android or '?'} (API level {facts.sdk})"
            return Trouble(f"it has {android}; level {self.sdk} is needed", "update it, or use a phone of Android 8 on")
        if self.free_bytes is not None and free is not None and free < self.free_bytes:
            return Trouble(
                f"{free / 1e6:,.0f} MB are free on it; {self.free_bytes / 1e6:,.0f} MB are needed",
                "free space on it (Settings, Storage)",
            )
        if percent is not None and percent < self.battery_percent:
            return Trouble(
                f"its battery is at {percent} %; {self.battery_percent} % are needed, also on a charger",
                "charge it first",
            )
        if facts.thermal_status is not None and facts.thermal_status > self.thermal_status:
            found, most = (HEAT[min(status, 6)] for status in (facts.thermal_status, self.thermal_status))
            return Trouble(f"it is hot: thermal status {found}; at most {most} is needed", "let it cool down")
        return None


USUAL = Readiness()
