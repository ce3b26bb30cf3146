"""Which kernel sets the tests run on this machine; `python -m tests.native.kernel_sets` says so in one line.

What sets there are, and what a CPU must have for one, is read from their sources: none can be forgotten here.
"""

import platform
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.native_build.targets import NATIVE


class CompiledSet(NamedTuple):
    """A set of kernels, fp32 or bf16: the machine it is compiled for (None: any), the CPU's features it needs."""

    name: str
    machine: str | None
    features: frozenset[str]


def compiled_sets(folder: Path = NATIVE / "src" / "kernels") -> list[CompiledSet]:
    """The sets of a folder of sources, by name."""
    found = []
    for path in folder.glob("*.cpp"):
        text = path.read_text()
        for name in re.findall(r'^#define (?:SET|BF16)_NAME "(.+)"$', text, re.MULTILINE):
            machine = re.search(r"^#if defined\(__(\w+)__\)$", text, re.MULTILINE)
            features = re.search(r'^#define KERNEL_LAMBDA __attribute__\(\(target\("(.+)"\)\)\)$', text, re.MULTILINE)
            needed = frozenset(features[1].replace("-", "").split(",")) if features else frozenset()
            found.append(CompiledSet(name, machine[1] if machine else None, needed))
    return sorted(found)


def features_here() -> set[str]:
    """What the system says of this x86-64 CPU, in the compiler's words."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert flags is not None
    return {flag.replace("_", "") for flag in flags[1].split()}


def sets_here() -> list[str]:
    """What the engine finds on this CPU, best first."""
    info = load_library().cpu_info()
    return [*info["kernels"], *([info["bf16"]] if info["bf16"] else [])]


def describe_sets(sets: Iterable[CompiledSet], machine: str, here: Iterable[str], emulator: bool) -> str:
    """The line."""
    running, lacking, emulated = [], [], []
    for one in sets:
        if one.name in here:
            running.append(one.name)
        elif one.machine == machine:
            lacking.append(one.name)
        else:
            emulated.append(one.name)
    parts = [f"kernel sets run on this CPU: {', '.join(running)}"]
    if emulated:
        way = "under qemu-aarch64 (make phone-test)" if emulator else "not run, qemu-aarch64 is missing"
        parts.append(f"{way}: {', '.join(emulated)}")
    why = "this CPU lacks them or has better ones"
    parts.append(f"NOT RUN, {why}: {', '.join(lacking)}" if lacking else "this CPU lacks none")
    return "; ".join(parts)


def main() -> None:
    emulator = any(map(shutil.which, ("qemu-aarch64-static", "qemu-aarch64")))
    print(describe_sets(compiled_sets(), platform.machine(), sets_here(), emulator))  # noqa: T201


if __name__ == "__main__":
    main()
