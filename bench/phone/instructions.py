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
WRITES = {"aarch64": (64, 66), "x86_64": (1, 20)}  # Linux's numbers of write and writev


@dataclass(frozen=True)
class Line:
    """A line of a program's standard output, and the instructions executed before it was written."""

    text: str
    instructions: int


@dataclass(frozen=True)
class Counter:
    """qemu with the plugin. `version`: qemu's; `cpu`: the processor it plays, as `-cpu` names it."""

    qemu: str
    version: str
    plugin: Path

    def lines(self, cpu: str, *command: str | Path) -> list[Line]:
        """Run a program that writes its output line by line; "" is the last line, at its exit.

        Raises BenchError if it fails, or writes lines in parts.
        """
        descriptor, name = tempfile.mkstemp(".count", dir=self.plugin.parent)  # two may run at once
        os.close(descriptor)
        out = Path(name)
        line = [self.qemu, "-cpu", cpu, "-plugin", f"{self.plugin},out={out}", *map(str, command)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        counted = [int(number) for number in out.read_text("ascii").split()]
        out.unlink()
        program = Path(command[0]).name
        if done.returncode != 0 or not counted:
            last = (done.stderr.strip().splitlines() or ["it counted nothing"])[-1]
            raise BenchError(f"bench: {program} under qemu exited with code {done.returncode}: {last}")
        written = [*done.stdout.splitlines(), ""]
        if len(written) != len(counted):
            raise BenchError(
                f"bench: {program} wrote {len(written) - 1} lines in {len(counted) - 1} writes, expected one each"
            )
        return [Line(text, number) for text, number in zip(written, counted, strict=True)]


@contextmanager
def instruction_counter(machine: str) -> Iterator[Counter]:
    """A counter for programs of a machine, aarch64 or x86_64, for as long as the block lasts.

    Raises UnsupportedError without qemu for it or ziglang.
    """
    qemu = find_tool(f"qemu-{machine}", "Debian's package qemu-user")
    said = subprocess.run([qemu, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.findall(r"version (\d+)\.([\d.]+)", said)[0]
    interface = 1 if int(version[0]) < 9 else 2
    defined = {"PLUGIN_VERSION": interface, **dict(zip(("WRITE", "WRITEV"), WRITES[machine], strict=True))}
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "instruction_count.so"
        line = [find_zig(), "cc", "-shared", "-fPIC", "-O2", PLUGIN, "-o", plugin]
        line += [f"-D{name}={value}" for name, value in defined.items()]
        done = subprocess.run([*map(str, line)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"bench: {PLUGIN.name} does not compile: {done.stderr.strip()}")
        yield Counter(qemu, ".".join(version), plugin)
