"""What a host may ask adbd for, by the name with which it opens a stream."""

from collections.abc import Callable, Coroutine

from .shell import ShellService
from .streams import Stream
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
        return None

    async def _going_down(self, stream: Stream) -> None:
        await stream.close()
        self._reboot()
