"""What a host may ask adbd for, by the name with which it opens a stream."""

from collections.abc import Callable, Coroutine
from contextlib import suppress

from .shell import ShellService
from .streams import Stream, StreamClosedError
from .sync import SyncService

Work = Coroutine[None, None, None]


class Services:
    """Finds the service of a name."""

    def __init__(self, shell: ShellService, sync: SyncService, reboot: Callable[[], None]):
        self._shell = shell
        self._sync = sync
        self._reboot = reboot

    def find(self, name: str, stream: Stream) -> Work | None:
        """The work to do on the stream; None: there is no such service."""
        kind = name.partition(":")[0].partition(",")[0]
        if kind in {"shell", "exec"}:
            return self._shell.serve(name, stream)
        if kind == "sync":
            return self._sync.serve(stream)
        if kind == "reboot":
            return self._going_down(stream)
        if kind == "root":
            return _say(stream, "adbd cannot run as root in production builds\n")
        if kind == "remount":
            return _say(stream, 'Not running as root. Try "adb root" first.\n')
        return None

    async def _going_down(self, stream: Stream) -> None:
        await stream.close()
        self._reboot()


async def _say(stream: Stream, text: str) -> None:
    with suppress(StreamClosedError):
        await stream.send(text.encode())
        await stream.close()
