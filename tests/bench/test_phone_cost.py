import json
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.bench.contestants import BenchError
from phonograd.bench.environment import find_tool
from phonograd.bench.phone.instructions import Counter, Line, instruction_counter
from phonograd.bench.phone.loops import LoopCost, hottest_loop, inner_loops, loop_cost
from phonograd.bench.phone_cost import (
    BEST,
    KERNELS,
    OUTER_PRODUCTS,
    Count,
    Run,
    _instructions,
    bench_phone,
    count_instructions,
    kernel_loop,
    projection,
    regressions,
    saved_epoch,
)
from phonograd.bench.results import FOLDER
from phonograd.device_runtime.base.errors import UnsupportedError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build.compiler import find_zig
from phonograd.export.presets import preset_named
from tests.support.artifacts import exported

# An outer loop around two inner ones, as the compiler writes them.
ASSEMBLY = """
	.text
_ZN9phonograd4neon12_GLOBAL__N_18multiplyEiii: // @name
	.cfi_startproc
	cbz	w0, .LBB1_9
.LBB1_1:                                // =>This Loop Header: Depth=1
	mov	x1, x2
.LBB1_2:                                //   Parent Loop BB1_1 Depth=1
	fmla	v1.4s, v10.4s, v12.4s
	subs	x8, x8, #1
	b.ne	.LBB1_2
// %bb.3:
	mov	x3, x4
.LBB1_4:
	ld1r	{ v12.4s }, [x10], x1
	fmla	v1.4s, v10.4s, v12.4s
	fmla	v2.4s, v10.4s, v12.s[0]  // comment with .LBB1_1
	bfmmla	v3.4s, v10.8h, v12.8h
	cbnz	x8, .LBB1_4
	tbz	w9, #0, .LBB1_1
.LBB1_9:
	ret
plain:
.LBB2_1:
	fadd	v1.4s, v10.4s, v12.4s
	b	.LBB2_1
"""


def test_inner_loops_are_found_and_the_hottest_has_most_multiply_adds() -> None:
    loops = list(inner_loops(ASSEMBLY))
    assert [(loop.function, len(loop.body), loop.multiply_adds) for loop in loops] == [
        ("phonograd::neon::multiply", 3, ["fmla"]), ("phonograd::neon::multiply", 5, ["fmla", "fmla", "bfmmla"]),
        ("plain", 2, []),
    ]  # fmt: skip
    hottest = hottest_loop(ASSEMBLY, "multiply")
    assert hottest == loops[1]
    assert hottest.body[2:4] == ("fmla\tv2.4s, v10.4s, v12.s[0]", "bfmmla\tv3.4s, v10.8h, v12.8h")
    with pytest.raises(BenchError, match="plain has no inner loop with fmla"):
        hottest_loop(ASSEMBLY, "plain")
    with pytest.raises(BenchError, match="main has no inner loop with fmla"):
        hottest_loop("main:\n\tret\n", "main")


def test_an_epoch_is_projected_from_a_loop_and_from_all_instructions() -> None:
    paper = preset_named("popov-2x650").model
    cost = LoopCost("cortex-a55", "f", fmla=24, multiply_adds=96, instructions=36, cycles=24.0)
    full = projection(cost, "fp32", paper, paper.vocabulary, None)
    assert full.cycles_per_token == pytest.approx(157.8e6 / 8, rel=1e-3)
    assert full.epoch_seconds == pytest.approx(full.cycles_per_token * 4000 / (4 * 2.31e9))
    assert (full.all_cycles_per_token, full.all_epoch_seconds) == (None, None)
    sampled = projection(cost, "fp32", paper, 3000, 1.5e6)
    assert sampled.cycles_per_token == pytest.approx(full.cycles_per_token - 6 * 27000 * 651 / 8)
    assert sampled.all_cycles_per_token == pytest.approx(1e6)
    assert sampled.all_epoch_seconds == pytest.approx(1e6 * 4000 / (4 * 2.31e9))


@pytest.mark.parametrize("sampled", [False, True])
def test_loading_and_the_report_are_taken_off_the_instructions_of_a_token(
    monkeypatch: pytest.MonkeyPatch, sampled: bool
) -> None:
    artifacts = exported(LanguageModelConfig("lstm", 2000, 16, 16, 2)).folder
    seen, words = [], set[int]()

    def lines(self: Counter, cpu: str, *command: str | Path) -> list[Line]:
        stream = np.fromfile(command[-1], "<i4")
        seen.append((cpu, command[1:3], len(stream), "--output-sample" in command))
        words.update(stream)
        events = [("start", 1_000_000), ("step", 1_000_000 + 77 * len(stream)), ("report", 3_000_000)]
        return [*(Line(json.dumps({"event": event}), executed) for event, executed in events), Line("", 4_000_000)]

    monkeypatch.setattr(Counter, "lines", lines)
    run = Run("aarch64", Counter("qemu", "7.2", Path("p")), Path("binary"), "max", "bf16", "neon", sampled)
    found = count_instructions(run, artifacts)
    assert found.instructions_per_token == 77
    assert found.tokens == 200
    assert (found.machine, found.cpu, found.precision) == ("aarch64", "max", "bf16")
    assert seen == [("max", ("train", artifacts), 200, sampled)]
    assert found.output_words == pytest.approx(len(words) + 200, abs=40) if sampled else found.output_words == 2000


def test_more_instructions_than_kept_are_told() -> None:
    def document(**counts: float) -> dict[str, object]:
        run = {"machine": "aarch64", "cpu": "max", "precision": "fp32", "output_words": 2000}
        return {"counts": [{"model": name, "instructions_per_token": n, **run} for name, n in counts.items()]}

    assert regressions(document(a=101.0, b=50.0), document(a=100.0, b=100.0, c=1.0)) == []
    lines = regressions(document(a=103.0, d=1.0), document(a=100.0))
    assert lines == [
        "a on max, fp32, 2,000 words: 3.0% more instructions a token than 100",
        "d on max, fp32, 2,000 words: no saved count to compare with; save one first",
    ]  # fmt: skip


def test_a_tool_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(UnsupportedError, match="no-such-qemu not found; install Debian's package x"):
        find_tool("no-such-qemu other", "Debian's package x")


@pytest.mark.phone
def test_every_run_of_the_phones_binary_is_counted_and_projected() -> None:
    model = LanguageModelConfig("lstm", 2000, 16, 16, 2)
    document = bench_phone([exported(model).folder], model, ["cortex-a53"])
    counts = {(one["cpu"], one["precision"], one["machine"], one["output_words"]): one for one in document["counts"]}
    (sampled,) = {words for *_, words in counts} - {2000}
    arm = (("cortex-a53", "fp32"), (BEST, "bf16"), (OUTER_PRODUCTS, "fp32"), (OUTER_PRODUCTS, "bf16"))
    runs = (*((*run, "aarch64") for run in arm), (BEST, "fp32", "x86_64"))
    assert list(counts) == [(*run, words) for run in runs for words in (2000, sampled)]
    for run in runs:
        full, less = (counts[(*run, words)]["instructions_per_token"] for words in (2000, sampled))
        assert 0 < less < full
    assert document["binary_bytes"] > 0 < document["library_bytes"]
    projected = [(one["cpu"], one["precision"], one["output_words"]) for one in document["projections"]]
    cores = [(core, precision) for precision, cores in KERNELS.values() for core in cores]
    assert projected == [(*core, words) for core in cores for words in (2000, sampled)]
    for one in document["projections"]:
        assert one["all_epoch_seconds"] > one["epoch_seconds"]


def test_what_was_not_counted_is_not_projected() -> None:
    paper = preset_named("popov-2x650").model
    assert _instructions([], paper, "fp32") == {30000: None, 3000: None}
    count = Count("LSTM 2x650, 30,000 words", "aarch64", "cortex-a53", "fp32", 3210, 200, 5e6, 2.8)
    assert _instructions([count], paper, "fp32") == {3210: 5e6}
    assert _instructions([count], paper, "bf16") == {3210: None}
    for other in (replace(count, machine="x86_64"), replace(count, cpu=OUTER_PRODUCTS)):
        assert _instructions([other], paper, "fp32") == {30000: None, 3000: None}


# Five and the call that writes "hi" and a line's end, then two, twice a thousand, and two.
PROGRAM = """
__attribute__((naked)) void _start(void) {
  __asm__(
    "mov x0, #1; adr x1, 2f; mov x2, #3; mov x8, #64; svc #0;"
    "mov x0, #0; mov x1, #1000; 1: subs x1, x1, #1; b.ne 1b; mov x8, #93; svc #0; 2: .ascii \\"hi\\\\n\\"");
}
"""


@pytest.mark.phone
def test_instructions_are_counted_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(PROGRAM)
    flags = ("-target", "aarch64-linux-musl", "-nostdlib", "-static", "-o", str(tmp_path / "p"))
    subprocess.run([find_zig(), "cc", str(tmp_path / "p.c"), *flags], check=True)
    with instruction_counter("aarch64") as counter:
        assert counter.lines("cortex-a53", tmp_path / "p") == [Line("hi", 5), Line("", 2009)]


@pytest.mark.phone
def test_the_inner_loops_of_the_phone_build_keep_the_multipliers_busy() -> None:
    """Cycles at most for a tile of 8 by 12 and one instruction deep; two units of 128 bits need 12, a V1's four 6."""
    most = {
        "cortex-a53": 40,
        "cortex-a55": 28,
        "neoverse-n1": 13,
        "neoverse-v1": 7,
        "cortex-a510": 26,
        "neoverse-n2": 13,
    }
    for kernel, (_, cores) in KERNELS.items():
        loop = kernel_loop(kernel)
        assert len(loop.multiply_adds) == 24
        assert len(set(loop.multiply_adds)) == 1
        for core in cores:
            cost = loop_cost(loop, core)
            assert (6 if core == "neoverse-v1" else 12) <= cost.cycles <= most.pop(core), cost
    assert not most


def test_an_epoch_of_a_model_that_was_counted() -> None:
    saved = json.loads((FOLDER / "phone.json").read_text("utf-8"))
    paper = preset_named("popov-2x650").model
    expected = {
        one["cpu"]: one["all_epoch_seconds"]
        for one in saved["projections"]
        if (one["precision"], one["output_words"]) == ("fp32", 30_000)
    }
    for cpu in ("cortex-a55", "neoverse-n1"):
        assert saved_epoch(saved, cpu, paper) == pytest.approx(expected[cpu], rel=1e-3)
    small = LanguageModelConfig("lstm", vocabulary=2000, embedding=64, hidden=64, layers=2)
    assert saved_epoch(saved, "cortex-a55", small) is not None
    assert saved_epoch(saved, "cortex-a55", msgspec.structs.replace(small, vocabulary=2001)) is None
