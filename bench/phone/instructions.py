"""Exact instruction counts of programs, by qemu-user and a plugin of ours."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phonograd.bench.contestants import BenchError
from phonograd.bench.environment import find_tool
from phonograd.device_runtime.native_build.compiler import find_zig

PLUGIN = Path(__file__).parent / "instruction_count.c"


@dataclass(frozen=True)
class Counter:
    """qemu with the plugin. `version`: qemu's; `cpu`: the processor it plays, as `-cpu` names it."""

    qemu: str
    version: str
    plugin: Path

    def count(self, cpu: str, *command: str | Path) -> int:
        """Instructions of one run of a program, from its first to its exit. Raises BenchError if it fails."""
        descriptor, name = tempfile.mkstemp(".count", dir=self.plugin.parent)  # two may run at once
        os.close(descriptor)
        out = Path(name)
        line = [self.qemu, "-cpu", cpu, "-plugin", f"{self.plugin},out={out}", *map(str, command)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        counted = out.read_text("ascii")
        out.unlink()
        if done.returncode != 0 or not counted:
            last = (done.stderr.strip().splitlines() or ["it counted nothing"])[-1]
            raise BenchError(f"bench: {Path(command[0]).name} under qemu exited with code {done.returncode}: {last}")
        return int(counted)


@contextmanager
def instruction_counter(machine: str) -> Iterator[Counter]:
    """A counter for programs of a machine, aarch64 or x86_64, for as long as the block lasts.

    Raises UnsupportedError without qemu for it or ziglang.
    """
    qemu = find_tool(f"qemu-{machine}", "Debian's package qemu-user")
    said = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.findall(r"version (\d+)\.([\d.]+)", said)[0]
    interface = 1 if int(version[0]) < 9 else 2
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "instruction_count.so"
        line = [find_zig(), "cc", "-shared", "-fPIC", "-O2", f"-DPLUGIN_VERSION={interface}", PLUGIN, "-o", plugin]
        done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"bench: {PLUGIN.name} does not compile: {done.stderr.strip()}")
        yield Counter(qemu, ".".join(version), plugin)
