"""Who is who on the phone: adbd is the namespaces' root, all that it runs is user `shell`, 2000, without a capability.

One user of this machine is behind both, so that nobody need be root here: a second user namespace calls it 2000.
"""

import ctypes
import os
import struct
from pathlib import Path

SHELL_UID = 2000
_CLONE_NEWUSER = 0x10000000
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES = struct.Struct("<6I")  # effective, permitted, inheritable; then the same of the upper 32

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """OSError with what errno says, unless a call of the C library succeeded."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def obey_file_modes() -> None:
    """Be refused from now on what a file's mode forbids, as a real adbd, which is no root either."""
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    found = ctypes.create_string_buffer(_CAPABILITIES.size)
    check(libc.capget(header, found), "capget")
    effective, permitted, inheritable, *upper = _CAPABILITIES.unpack(found.raw)
    kept = ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
    check(libc.capset(header, _CAPABILITIES.pack(effective & kept, permitted & kept, inheritable, *upper)), "capset")


class ShellUser:
    """The namespace in which this process's user is `shell`."""

    def __init__(self) -> None:
        mapped, let_go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.close(let_go[1])
            _hold_namespace(mapped[1], let_go[0])
        os.close(mapped[1])
        os.close(let_go[0])
        try:
            if os.read(mapped[0], 1) != b"+":
                raise OSError(f"no user namespace for {SHELL_UID}; /proc/sys/user/max_user_namespaces limits them")
            self._namespace = os.open(Path(f"/proc/{child}/ns/user"), os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(mapped[0])
            os.close(let_go[1])
            os.waitpid(child, 0)

    def become(self) -> None:
        """Be `shell`; what is then executed has no capability. For a new child: it imports nothing."""
        check(libc.setns(self._namespace, _CLONE_NEWUSER), "setns")


def _hold_namespace(mapped: int, let_go: int) -> None:
    """Make the namespace in a new child, and live until it is held by the parent."""
    uid, gid = os.getuid(), os.getgid()
    try:
        check(libc.unshare(_CLONE_NEWUSER), "unshare")
        maps = (("setgroups", "deny"), ("uid_map", f"{SHELL_UID} {uid} 1"), ("gid_map", f"{SHELL_UID} {gid} 1"))
        for name, text in maps:
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(fd, text.encode())
            os.close(fd)
        os.write(mapped, b"+")
        os.read(let_go, 1)
    finally:
        os._exit(0)
