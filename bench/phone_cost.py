"""Estimates the cost of training on a phone without one: instructions per trained token of the phone's binary, cycles
of its hottest inner loop, and the seconds of an epoch that would follow.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import BenchError, Say
from phonograd.bench.flops import step_flop
from phonograd.bench.markdown import Table, figure, model_name, text
from phonograd.bench.phone.instructions import Counter, instruction_counter
from phonograd.bench.phone.loops import Loop, LoopCost, hottest_loop, loop_cost
from phonograd.bench.results import Document
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.engine.backend import Precision
from phonograd.device_runtime.engine.c_abi import find_library
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import build_host_command, build_phone_binary
from phonograd.device_runtime.native_build.compiler import find_zig
from phonograd.device_runtime.native_build.targets import NATIVE, PHONE
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Vocabulary

SCHEMA_VERSION = 2
# Small enough for qemu, large enough for the products to dominate.
SMALL = LanguageModelConfig("lstm", vocabulary=2000, embedding=64, hidden=64, layers=2)
TOLERANCE = 0.02
# The products in fp32 and in bf16, and the cores that llvm-mca is asked about: the little ones of most phones, and big
# ones by their server siblings, as llvm takes an A76 or X1 for an A57: N1 for the A76, V1 for the X1, N2 for the A710.
KERNELS: Mapping[Path, tuple[Precision, tuple[str, ...]]] = {
    Path("src/kernels/kernels_neon.cpp"): ("fp32", ("cortex-a53", "cortex-a55", "neoverse-n1", "neoverse-v1")),
    Path("src/kernels/bf16_neon.cpp"): ("bf16", ("cortex-a510", "neoverse-n2")),
}
BEST = "max"  # qemu's processor with all it can play: bf16 on aarch64, AVX2 on x86_64
OUTER_PRODUCTS = "max,sme512=on"  # the same with SME, as wide as of most processors that have it
# Popov et al., section 3: an epoch over about 20 KB of text on "a quad-core 2.31 GHz" phone.
PAPER_CORES, PAPER_GHZ, PAPER_EPOCH_SECONDS, PAPER_STEPS = 4, 2.31, 140.0, 20
SAMPLED = 10  # an output sample draws a tenth of the vocabulary: of the paper's as many as an epoch's words and 2,000


@dataclass(frozen=True)
class Count:
    """Instructions per trained token, those of loading not counted.

    output_words: words that the softmax runs over, the vocabulary or an output sample's.
    """

    model: str
    machine: str
    cpu: str
    precision: Precision
    output_words: int
    tokens: int
    instructions_per_token: float
    flop_per_instruction: float


@dataclass(frozen=True)
class Run:
    """What to count: a build of the phone's command, on a processor, by one set of kernels, maybe sampling outputs."""

    machine: str
    counter: Counter
    binary: Path
    cpu: str
    precision: Precision
    kernels: str
    sampled: bool


def count_instructions(run: Run, folder: Path) -> Count:
    """Train one step on one thread: what is executed between the events `start` and `step`. Raises BenchError.

    One step is enough: with SMALL the next ones take 0.1 % more or fewer. At full size qemu plays a step for minutes.
    """
    artifacts = open_artifacts(folder)
    model, training = artifacts.manifest.model, artifacts.manifest.training
    tokens = training.minibatch * training.bptt
    window = np.random.default_rng(0).integers(model.vocabulary, size=tokens)
    command: list[str | Path] = [
        run.binary,
        "train",
        folder,
        "--threads",
        "1",
        "--precision",
        run.precision,
        "--kernels",
        run.kernels,
        "--seed",
        "0",
    ]
    words = model.vocabulary
    if run.sampled:
        drawn = words // SAMPLED
        words = _sampled_words(artifacts, window, drawn)
        command += ["--output-sample", f"{drawn}", "--sample-seed", "0"]
    with tempfile.TemporaryDirectory() as place:
        stream = Path(place) / "stream"
        window.astype("<i4").tofile(stream)
        executed = {
            json.loads(line.text)["event"]: line.instructions
            for line in run.counter.lines(run.cpu, *command, "--tokens", stream)
            if line.text
        }
    step = executed["step"] - executed["start"]
    return Count(
        shape_name(model),
        run.machine,
        run.cpu,
        run.precision,
        words,
        tokens,
        step / tokens,
        step_flop(model, training, words) / step,
    )


def _sampled_words(artifacts: Artifacts, stream: Any, drawn: int) -> int:
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    return len(draw_output_sample(stream, vocabulary.frequencies(), SampleDraw(drawn, 0)))


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


@dataclass(frozen=True)
class Projection:
    """An epoch of the paper's model on one kind of core.

    cycles_per_token: if all arithmetic ran at the inner loop's rate; epoch_seconds: of that, on the paper's phone, if
    all cores are always busy and never wait for memory. The others: if every instruction that was counted took as long
    as that loop's; None if they were not counted.
    """

    cpu: str
    precision: Precision
    output_words: int
    cycles_per_token: float
    epoch_seconds: float
    all_cycles_per_token: float | None
    all_epoch_seconds: float | None


def projection(
    cost: LoopCost, precision: Precision, paper: LanguageModelConfig, words: int, instructions: float | None
) -> Projection:
    """words: that the softmax runs over; instructions: counted, a token."""
    training = TrainingConfig()
    tokens = training.minibatch * training.bptt
    cycles = step_flop(paper, training, words) / tokens / cost.flop_per_cycle
    all_cycles = None if instructions is None else instructions / cost.instructions_per_cycle

    def epoch(cycles_per_token: float) -> float:
        return cycles_per_token * tokens * PAPER_STEPS / (PAPER_CORES * PAPER_GHZ * 1e9)

    return Projection(
        cost.cpu, precision, words, cycles, epoch(cycles), all_cycles, None if all_cycles is None else epoch(all_cycles)
    )


def shape_name(model: LanguageModelConfig) -> str:
    """The name of a model in counts."""
    return model_name(document_of(model))


def saved_epoch(saved: Document, cpu: str, model: LanguageModelConfig) -> float | None:
    """The projected seconds of an epoch in fp32 with the whole softmax, if the saved result counted that model."""
    (loop,) = (one for one in saved["loops"] if one["cpu"] == cpu)
    cost = LoopCost(**{name: value for name, value in loop.items() if name != "flop_per_cycle"})
    run = {"model": shape_name(model), "machine": "aarch64", "precision": "fp32", "output_words": model.vocabulary}
    counted = (one["instructions_per_token"] for one in saved["counts"] if run.items() <= one.items())
    return projection(cost, "fp32", model, model.vocabulary, next(counted, None)).all_epoch_seconds


def bench_phone(
    folders: Sequence[Path], paper: LanguageModelConfig, cpus: Sequence[str], say: Say = str
) -> dict[str, Any]:
    """The document of kind "phone": counts in fp32 and bf16 of each folder, of the first one also by SME and on x86_64.

    paper: the model whose epoch is projected; cpus: those that fp32 is counted on.

    Raises BenchError, UnsupportedError for a missing tool, and what building the binary raises.
    """
    say("building the phone binary, which can take minutes the first time")
    phone, host = build_phone_binary().path, build_host_command().path
    with instruction_counter("aarch64") as arm, instruction_counter("x86_64") as x86, ThreadPoolExecutor(2) as pool:
        programs: list[tuple[str, Counter, Path, str, Precision, str]] = [
            *(("aarch64", arm, phone, cpu, "fp32", "neon") for cpu in cpus),
            ("aarch64", arm, phone, BEST, "bf16", "neon"),
            ("aarch64", arm, phone, OUTER_PRODUCTS, "fp32", "sme"),
            ("aarch64", arm, phone, OUTER_PRODUCTS, "bf16", "sme"),
            ("x86_64", x86, host, BEST, "fp32", "avx2"),
        ]
        runs = [Run(*program, sampled) for program in programs for sampled in (False, True)]
        jobs = [(run, folder) for run in runs for folder in folders if run.kernels == "neon" or folder == folders[0]]
        counts = []
        for count in pool.map(lambda job: count_instructions(*job), jobs):
            counts.append(count)
            say(f"{len(counts)} of {len(jobs)} runs counted under qemu")
        qemu = arm.version
    say("asking llvm-mca")
    costs = [
        (precision, loop_cost(loop, core))
        for kernel, (precision, cores) in KERNELS.items()
        for loop in [kernel_loop(kernel)]
        for core in cores
    ]
    projections = [
        projection(cost, precision, paper, words, instructions)
        for precision, cost in costs
        for words, instructions in _instructions(counts, paper, precision).items()
    ]
    return {
        "kind": "phone",
        "schema_version": SCHEMA_VERSION,
        "binary_bytes": phone.stat().st_size,
        "library_bytes": find_library().stat().st_size,
        "qemu": qemu,
        "counts": [asdict(count) for count in counts],
        "loops": [{**asdict(cost), "flop_per_cycle": cost.flop_per_cycle} for _, cost in costs],
        "projections": [asdict(one) for one in projections],
        "phone": {"cores": PAPER_CORES, "ghz": PAPER_GHZ, "measured_epoch_seconds": PAPER_EPOCH_SECONDS},
    }


def _instructions(counts: Sequence[Count], paper: LanguageModelConfig, precision: Precision) -> dict[int, float | None]:
    name = shape_name(paper)
    of_paper = [one for one in counts if (one.model, one.machine) == (name, "aarch64") and one.cpu != OUTER_PRODUCTS]
    words = [one.output_words for one in of_paper] or [paper.vocabulary, paper.vocabulary // SAMPLED]
    per_token = {one.output_words: one.instructions_per_token for one in of_paper if one.precision == precision}
    return {number: per_token.get(number) for number in words}


def _key(count: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(count[field] for field in ("model", "machine", "cpu", "precision", "output_words"))


def regressions(new: Mapping[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """A line for each count that exceeds the saved one of the same run by more than TOLERANCE."""
    bars = {_key(one): one["instructions_per_token"] for one in kept["counts"]}
    lines = []
    for one in new["counts"]:
        bar, what = (
            bars.get(_key(one)),
            f"{one['model']} on {one['cpu']}, {one['precision']}, {one['output_words']:,} words",
        )
        if bar is None:
            lines.append(f"{what}: no saved count to compare with; save one first")
        elif one["instructions_per_token"] > bar * (1 + TOLERANCE):
            more = one["instructions_per_token"] / bar - 1
            lines.append(f"{what}: {more:.1%} more instructions a token than {bar:,.0f}")
    return lines


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    phone = document["phone"]
    yield "The phone binary, without a phone"
    yield (
        f"`phonograd-phone` for aarch64 has {document['binary_bytes']:,} bytes, the host's library "
        f"{document['library_bytes']:,}. Instructions per trained token of the former, and on x86_64 of its build for "
        f"the host, by qemu {document['qemu']}: one thread, without loading. qemu's x86_64 has AVX2 and no AVX-512. "
        "Counts on a CPU with sme in its name are of SME's outer products, which do much work an instruction; no "
        "hardware has timed them."
    )
    columns = {
        **{name: text(name) for name in ("model", "machine", "cpu", "precision")},
        "output words": figure("output_words", ","),
        "instructions a token": figure("instructions_per_token", ",.0f"),
        "FLOP an instruction": figure("flop_per_instruction", ".2f"),
    }
    yield Table("Instructions", columns, document["counts"])
    yield "The innermost loop with most multiply-adds, in fp32 and in bf16, by llvm-mca."
    columns = {
        "core": text("cpu"),
        "function": text("function"),
        "fmla, bfmmla": figure("fmla", "d"),
        "instructions": figure("instructions", "d"),
        "cycles": figure("cycles", ".1f"),
        "FLOP a cycle": figure("flop_per_cycle", ".2f"),
    }
    yield Table("Inner loops", columns, document["loops"])
    yield (
        "An epoch of the paper's model if all arithmetic ran as in that loop, or, in the last two columns, if every "
        "instruction counted above took as long as that loop's: **projections, not measurements**, for "
        f"{phone['cores']} cores at {phone['ghz']} GHz, all always busy, memory never waited for. Popov et al. "
        f"measured {phone['measured_epoch_seconds']:.0f} s on such a phone."
    )
    columns = {
        "core": text("cpu"),
        "precision": text("precision"),
        "output words": figure("output_words", ","),
        "cycles a token": figure("cycles_per_token", ",.0f"),
        "epoch, s": figure("epoch_seconds", ".1f"),
        "cycles of all instructions": figure("all_cycles_per_token", ",.0f"),
        "epoch of them, s": figure("all_epoch_seconds", ".1f"),
    }
    yield Table("Projected epochs", columns, document["projections"])
