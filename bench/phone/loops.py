"""The hottest inner loop of a kernel, out of the compiler's assembly, and what llvm-mca says of it."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from phonograd.bench.contestants import BenchError
from phonograd.bench.environment import find_tool

MULTIPLY_ADDS = {"fmla": 4, "bfmmla": 16}  # of numbers, by one instruction on whole vectors
ITERATIONS = 1000
LABEL = re.compile(r"^(\.?[A-Za-z_][\w.$]*):")
BRANCH = re.compile(r"^\s+(?:b\.?\w*|cbn?z|tbn?z)\s.*?(\.L\w+)\s*$")
CODE = re.compile(r"^\s+[a-z]")


@dataclass(frozen=True)
class Loop:
    """A loop without a loop, or any other jump target, inside: the function it is in and its instructions."""

    function: str
    body: tuple[str, ...]

    @property
    def multiply_adds(self) -> list[str]:
        """The names of its instructions in MULTIPLY_ADDS, in order."""
        return [name for line in self.body if (name := line.split()[0]) in MULTIPLY_ADDS]


@dataclass(frozen=True)
class LoopCost:
    """Steady state of a loop on one core, operands always in the first-level cache. `cycles`: of one iteration."""

    cpu: str
    function: str
    fmla: int  # or bfmmla
    multiply_adds: int
    instructions: int
    cycles: float

    @property
    def flop_per_cycle(self) -> float:
        """Floating-point operations in a cycle: a multiply-add counts as two."""
        return self.multiply_adds * 2 / self.cycles

    @property
    def instructions_per_cycle(self) -> float:
        """Instructions in a cycle."""
        return self.instructions / self.cycles


def inner_loops(assembly: str) -> Iterator[Loop]:
    """Every innermost loop of aarch64 assembly (GNU syntax), in order."""
    function, label, body = "", "", list[str]()
    for line in assembly.splitlines():
        if labelled := LABEL.match(line):
            if not labelled[1].startswith(".L"):
                function = plain_name(labelled[1])
            label, body = labelled[1], []
        elif CODE.match(line):
            body.append(line.split("//")[0].strip())
            branch = BRANCH.match(line.split("//")[0])
            if branch and branch[1] == label:
                yield Loop(function, tuple(body))


def plain_name(symbol: str) -> str:
    """The qualified name in a mangled symbol (_ZN, then each part with its length before it); others as they are."""
    parts, rest = [], symbol.removeprefix("_ZN")
    while rest != symbol and (length := re.match(r"\d+", rest)):
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__")) or symbol


def hottest_loop(assembly: str, function: str) -> Loop:
    """The innermost loop of a function with most instructions in MULTIPLY_ADDS. Raises BenchError without one."""
    loops = [loop for loop in inner_loops(assembly) if loop.function.split("::")[-1] == function]
    loop = max(loops, key=lambda loop: len(loop.multiply_adds), default=Loop("", ()))
    if not loop.multiply_adds:
        raise BenchError(f"bench: {function} has no inner loop with fmla in the assembly; is it an aarch64 kernel?")
    return loop


def loop_cost(loop: Loop, cpu: str) -> LoopCost:
    """Ask llvm-mca. Raises UnsupportedError if it is not installed, BenchError if it refuses the code."""
    mca = find_tool("llvm-mca-19 llvm-mca", "Debian's package llvm-19")
    line = [mca, "-mtriple=aarch64", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", "-json"]
    done = subprocess.run(line, input="\n".join(loop.body), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"bench: llvm-mca: {done.stderr.strip() or done.returncode}")
    summary = json.loads(done.stdout)["CodeRegions"][0]["SummaryView"]
    names = loop.multiply_adds
    multiply_adds = sum(MULTIPLY_ADDS[name] for name in names)
    return LoopCost(cpu, loop.function, len(names), multiply_adds, len(loop.body), summary["TotalCycles"] / ITERATIONS)
