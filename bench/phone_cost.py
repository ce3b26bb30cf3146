"""Estimates the cost of training on a phone without one: instructions per trained token of the phone's binary, cycles
of its hottest inner loop, and the seconds of an epoch that would follow.
"""

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phonograd.bench.contestants import BenchError
from phonograd.bench.flops import step_flop
from phonograd.bench.phone.instructions import Counter, instruction_counter
from phonograd.bench.phone.loops import Loop, LoopCost, hottest_loop, loop_cost
from phonograd.device_runtime.formats.manifest import TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import NATIVE, PHONE, build_phone_binary
from phonograd.device_runtime.native_build.compiler import find_zig

SCHEMA_VERSION = 1
# Small enough for qemu, large enough for the products to dominate.
SMALL = LanguageModelConfig("lstm", vocabulary=2000, embedding=64, hidden=64, layers=2)
TOLERANCE = 0.02
# The products in fp32 and in bf16, and the cores that llvm-mca is asked about: the little ones of most phones, and the
# A76 class by its server sibling; with bf16 instructions their successors, the A710 class by its sibling.
KERNELS = {
    Path("src/kernels/kernels_neon.cpp"): ("cortex-a55", "neoverse-n1"),
    Path("src/kernels/bf16_neon.cpp"): ("cortex-a510", "neoverse-n2"),
}
# Popov et al., section 3: an epoch over about 20 KB of text on "a quad-core 2.31 GHz" phone.
PAPER_CORES, PAPER_GHZ, PAPER_EPOCH_SECONDS, PAPER_STEPS = 4, 2.31, 140.0, 20

Say = Callable[[str], object]


@dataclass(frozen=True)
class Count:
    """Instructions per trained token: a run of two steps minus a run of one, so that loading cancels out."""

    model: str
    cpu: str
    tokens: int
    instructions_per_token: float
    flop_per_instruction: float


def count_instructions(counter: Counter, binary: Path, folder: Path, cpu: str) -> Count:
    """Run `phonograd-phone bench` on one thread for one step and for two. Raises BenchError."""
    manifest = open_artifacts(folder).manifest

    def run(number: int) -> int:
        return counter.count(cpu, binary, "bench", folder, "--steps", str(number), "--threads", "1")

    executed = run(2) - run(1)
    tokens = manifest.training.minibatch * manifest.training.bptt
    return Count(
        _name(manifest.model),
        cpu,
        tokens,
        executed / tokens,
        step_flop(manifest.model, manifest.training) / executed,
    )


def kernel_loop(kernel: Path) -> Loop:
    """The hottest loop of one of KERNELS, as the phone build has it. Raises BenchError, and what finding zig raises."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.s"
        # zig also passes -c, which is unused with -S and so an error with -Werror.
        flags = (*PHONE.compile_flags, "-Wno-unused-command-line-argument")
        line = [str(find_zig()), "c++", *flags, "-S", str(kernel), "-o", str(out)]
        done = subprocess.run(line, cwd=NATIVE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"bench: {kernel} does not compile to assembly: {done.stderr.strip()}")
        return hottest_loop(out.read_text("utf-8"), "multiply")


def projected_seconds(cycles: float) -> float:
    """Seconds of an epoch on the paper's phone, if all cores are always busy and never wait for memory."""
    return cycles / (PAPER_CORES * PAPER_GHZ * 1e9)


def _projection(cost: LoopCost, epoch_flop: float, epoch_instructions: float | None) -> dict[str, float | None]:
    """Seconds if all arithmetic ran at this loop's rate, and if all instructions took as long as this loop's."""
    all_instructions = None
    if epoch_instructions is not None:
        all_instructions = projected_seconds(epoch_instructions / cost.instructions_per_cycle)
    return {
        "flop_per_cycle": cost.flop_per_cycle,
        "projected_epoch_seconds": projected_seconds(epoch_flop / cost.flop_per_cycle),
        "projected_with_overhead_seconds": all_instructions,
    }


def bench_phone(
    folders: Sequence[Path], paper: LanguageModelConfig, cpus: Sequence[str], say: Say = str
) -> dict[str, Any]:
    """The document of kind "phone", with counts for each folder and processor. paper: the model whose epoch is
    projected.

    Raises BenchError, UnsupportedError for a missing tool, and what building the binary raises.
    """
    say("building the phone binary, which can take minutes the first time")
    binary = build_phone_binary().path
    counts: list[Count] = []
    with instruction_counter() as counter:
        for folder in folders:
            for cpu in cpus:
                say(f"counting instructions on {cpu}, model {len(counts) // len(cpus) + 1} of {len(folders)}")
                counts.append(count_instructions(counter, binary, folder, cpu))
        qemu = counter.version
    say("asking llvm-mca")
    loops = [(kernel_loop(kernel), cores) for kernel, cores in KERNELS.items()]
    training = TrainingConfig()
    epoch_flop = step_flop(paper, training) * PAPER_STEPS
    epoch_tokens = training.minibatch * training.bptt * PAPER_STEPS
    epoch_instructions = next(
        (count.instructions_per_token * epoch_tokens for count in counts if count.model == _name(paper)), None
    )
    costs = [loop_cost(loop, core) for loop, cores in loops for core in cores]
    return {
        "kind": "phone",
        "schema_version": SCHEMA_VERSION,
        "binary_bytes": binary.stat().st_size,
        "qemu": qemu,
        "counts": [asdict(count) for count in counts],
        "loops": [{**asdict(cost), **_projection(cost, epoch_flop, epoch_instructions)} for cost in costs],
        "epoch_gflop": epoch_flop / 1e9,
        "phone": {"cores": PAPER_CORES, "ghz": PAPER_GHZ, "measured_epoch_seconds": PAPER_EPOCH_SECONDS},
    }


def regressions(found: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """A line for each count that exceeds the saved count of the same model and processor by more than TOLERANCE."""
    bars = {(one["model"], one["cpu"]): one["instructions_per_token"] for one in kept["counts"]}
    lines = []
    for one in found["counts"]:
        bar = bars.get((one["model"], one["cpu"]))
        if bar is None:
            lines.append(f"{one['model']} on {one['cpu']}: no saved count to compare with; save one first")
        elif one["instructions_per_token"] > bar * (1 + TOLERANCE):
            more = one["instructions_per_token"] / bar - 1
            lines.append(f"{one['model']} on {one['cpu']}: {more:.1%} more instructions a token than {bar:,.0f}")
    return lines


def _name(model: LanguageModelConfig) -> str:
    return f"{model.cell.upper()} {model.layers}x{model.hidden}, {model.vocabulary:,} words"
