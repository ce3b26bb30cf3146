"""The process that is the phone: first of its namespaces, it makes the world, then is init and adbd in one.

Orders come as JSON lines on stdin, `[name, {arguments}]`; answers go to stdout, `{"ok": ...}` or `{"error": ...}`. When
stdin ends, so does the phone: whoever started it is gone.
"""

import asyncio
import dataclasses
import encodings.idna  # noqa: F401 - sockets ask for it, when this machine's files are out of reach
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from . import userland, world
from .adbd import Adbd
from .children import Children
from .link import Link
from .shell import ShellService
from .spec import PhoneSpec
from .streams import Stream
from .sync import SyncService

ENVIRONMENT = {
    "ANDROID_DATA": "/data",
    "ANDROID_ROOT": "/system",
    "ANDROID_STORAGE": "/storage",
    "HOME": "/",
    "LOGNAME": "shell",
    "PATH": "/product/bin:/system/bin:/vendor/bin",
    "SHELL": "/system/bin/sh",
    "TMPDIR": "/data/local/tmp",
    "USER": "shell",
}
FEATURES = ("shell_v2", "cmd", "stat_v2", "ls_v2", "fixed_push_mkdir")
FEATURES_FROM_30 = ("sendrecv_v2", "fixed_push_symlink_timestamp")


def banner(spec: PhoneSpec) -> str:
    """What the phone says of itself when a host connects."""
    features = FEATURES + (FEATURES_FROM_30 if spec.sdk >= 30 else ())
    names = {"name": spec.product, "model": spec.model, "device": spec.product}
    told = "".join(f"ro.product.{name}={value};" for name, value in names.items())
    return f"device::{told}features={','.join(features)}"


class Device:
    """The running phone."""

    def __init__(self, spec: PhoneSpec, port: int):
        self._spec = spec
        self._link = Link()
        self._children = Children()
        self._tasks: set[asyncio.Task[None]] = set()
        environment = {**ENVIRONMENT, "QEMU_CPU": spec.cpu, "HOSTNAME": spec.product}
        self._shell = ShellService(self._children, environment)
        self._sync = SyncService(self._link)
        self.adbd = Adbd(self._link, banner(spec), self._find_service, spec.trusts_hosts, port)
        self._later(self._pull_when_broken())

    def _find_service(self, name: str, stream: Stream) -> Coroutine[None, None, None] | None:
        match name.partition(":")[0].partition(",")[0]:
            case "shell":
                return self._shell.serve(name, stream)
            case "sync":
                return self._sync.serve(stream)
        return None

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pull_when_broken(self) -> None:
        while True:
            await self._link.broken.wait()
            self._link.broken.clear()
            await self.adbd.unplug()

    async def reboot(self, seconds: float) -> None:
        """Go down at once; come back after that many seconds, with another boot id and nothing running."""
        await self.adbd.unplug()
        await self._children.kill_all()
        self._later(self._boot(seconds))

    async def _boot(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        userland.boot(Path("/"), self._spec)
        self._link.speaking.set()
        await self.adbd.plug()

    async def cable(self, order: str) -> None:
        """Have adbd plug, unplug or authorise."""
        await getattr(self.adbd, order)()

    async def talk(self, speaks: bool) -> None:
        """Answer, or be silent."""
        (self._link.speaking.set if speaks else self._link.speaking.clear)()

    async def drop_in_push(self, after_bytes: int) -> None:
        """Pull the cable when more than that many bytes of files have come."""
        self._link.push_left = after_bytes

    async def fill_storage(self, leave_bytes: int) -> None:
        world.resize_storage(max(world.storage_used(), world.PAGE) + leave_bytes)

    async def empty_storage(self) -> None:
        world.resize_storage(self._spec.storage_bytes)

    async def processes(self) -> list[str]:
        return self._children.running()

    async def kill(self, part: str) -> None:
        self._children.kill(part)

    async def counters(self) -> dict[str, int]:
        return dataclasses.asdict(self._link.counters)


ORDERS: dict[str, Callable[..., Awaitable[Any]]] = {
    name: member for name, member in vars(Device).items() if asyncio.iscoroutinefunction(member) and name[0] != "_"
}


async def _obey(device: Device) -> None:
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        name, arguments = json.loads(line)
        try:
            answer = {"ok": await ORDERS[name](device, **arguments)}
        except Exception as error:  # whatever it is, who ordered it is told
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


async def _live(spec: PhoneSpec, port: int, pid: int) -> None:
    device = Device(spec, port)
    await device.adbd.plug()
    print(json.dumps({"ok": {"pid": pid, "port": device.adbd.port}}), flush=True)  # noqa: T201 - the answer
    await _obey(device)


def main() -> None:
    """Arguments: one JSON object with spec, programs, emulator, base, port."""
    settings = json.loads(sys.argv[1])
    spec = PhoneSpec(**settings["spec"])
    programs = {name: Path(path) for name, path in settings["programs"].items()}
    pid = int(
        Path("/proc/self").readlink().name
    )  # this machine's number of this process: /proc is not yet the phone's own
    os.umask(0o022)
    socket.sethostname("localhost")
    os.sched_setaffinity(0, userland.host_cores())
    world.enter(spec, programs, Path(settings["emulator"]), Path(settings["base"]))
    asyncio.run(_live(spec, settings["port"], pid))
    os._exit(0)


if __name__ == "__main__":
    main()
