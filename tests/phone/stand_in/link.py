"""The cable: whether anything comes through, and at which byte it breaks."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class Counters:
    """What went over the cable since boot, in bytes of files."""

    pushed: int = 0
    pulled: int = 0


@dataclass
class Link:
    """The state of the cable; `broken` is set when a byte limit is passed, and whoever holds the cable pulls it."""

    counters: Counters = field(default_factory=Counters)
    push_left: int | None = None
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    speaking: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.speaking.set()

    async def count_pushed(self, nbytes: int) -> None:
        """Count bytes of a file on their way in; the cable may break at this one."""
        self.counters.pushed += nbytes
        if self.push_left is None:
            return
        self.push_left -= nbytes
        if self.push_left < 0:
            self.push_left = None
            self.broken.set()
            await asyncio.Event().wait()  # until whoever waited for `broken` has ended this connection's tasks
