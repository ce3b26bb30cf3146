"""The cable: how fast it is, whether anything comes through, and at which byte it breaks."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class Counters:
    """What went over the cable since boot, in bytes of files; and shells opened."""

    pushed: int = 0
    pulled: int = 0
    shells: int = 0


@dataclass
class Link:
    """The state of the cable; `broken` is set when a byte limit is passed, and whoever holds the cable pulls it."""

    counters: Counters = field(default_factory=Counters)
    bytes_per_s: float | None = None
    push_left: int | None = None
    shell_left: int | None = None
    broken: asyncio.Event = field(default_factory=asyncio.Event)
    speaking: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.speaking.set()

    async def carry(self, nbytes: int) -> None:
        """Wait as long as the bytes take; for ever while the phone is silent."""
        await self.speaking.wait()
        if self.bytes_per_s is not None:
            async with self._turn:
                await asyncio.sleep(nbytes / self.bytes_per_s)

    async def pushed(self, nbytes: int) -> None:
        """Count bytes of a file on their way in; the cable may break at this one."""
        self.counters.pushed += nbytes
        if self.push_left is not None:
            self.push_left -= nbytes
            await self._break_at(self.push_left)

    async def shell_output(self, nbytes: int) -> None:
        """Count bytes of a shell's output on their way out; the cable may break at this one."""
        if self.shell_left is not None:
            self.shell_left -= nbytes
            await self._break_at(self.shell_left)

    async def _break_at(self, left: int) -> None:
        if left < 0:
            self.push_left = self.shell_left = None
            self.broken.set()
            await asyncio.Event().wait()  # until whoever waited for `broken` has ended this connection's tasks
