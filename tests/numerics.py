"""`make numerics-test`: the tests marked `learns`, as several kinds of CPU compute, each with its seed and threads.

PyTorch, its MKL and oneDNN, NumPy's OpenBLAS and the native engine choose code for the CPU that they find, and sum in
another order on each kind. A test of learning must hold on all of them: a figure that depends on rounding is no result.
"""

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from phonograd.device_runtime.base.system import usable_cores
from tests.native.kernel_sets import features_here
from tests.support.margins import MARGINS, SEED, THREADS, Figure

ROOT = Path(__file__).parents[1]
AVX512 = frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})


class Cpu(NamedTuple):
    """A kind of CPU: the features it needs here, and how libraries are told to compute as on it."""

    name: str
    needs: frozenset[str]
    settings: Mapping[str, str]


def _cpu(name: str, needs: Iterable[str], openblas: str, kernels: str, **settings: str) -> Cpu:
    chosen = {"OPENBLAS_CORETYPE": openblas, "PHONOGRAD_KERNELS": kernels}
    return Cpu(name, frozenset(needs), chosen | settings)


CPUS = (
    _cpu(
        "SSE", (), "Prescott", "portable",
        ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE", ONEDNN_MAX_CPU_ISA="SSE41",
    ),
    _cpu(
        "AVX2", ("avx2", "fma"), "Haswell", "avx2",
        ATEN_CPU_CAPABILITY="avx2", MKL_CBWR="AVX2", ONEDNN_MAX_CPU_ISA="AVX2",
    ),
    _cpu("AVX-512", AVX512, "SkylakeX", "avx512"),
    _cpu("AMX", AVX512 | {"avx512bf16", "amxbf16"}, "SapphireRapids", "avx512"),
)  # fmt: skip


class Run(NamedTuple):
    """A run of all the tests."""

    cpu: Cpu
    threads: int
    seed: int

    def __str__(self) -> str:
        return f"{self.cpu.name}, {self.threads} threads, seed {self.seed}"

    def environment(self, margins: Path) -> dict[str, str]:
        """What the tests are started with."""
        count = str(self.threads)
        pools = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", THREADS), count)
        # Where there are fewer cores than threads, those that spin while they wait would keep the others from working.
        kept = {"OMP_WAIT_POLICY": "PASSIVE", SEED: str(self.seed), MARGINS: str(margins)}
        return {**os.environ, **self.cpu.settings, **pools, **kept}


def runs(features: Iterable[str]) -> list[Run]:
    """Each kind of CPU that these features allow, on four threads and on one by turns, with a seed of its own."""
    here = set(features)
    chosen = [cpu for cpu in CPUS if cpu.needs <= here]
    return [Run(cpu, 4 if seed % 2 else 1, seed) for seed, cpu in enumerate(chosen, 1)]


def table(figures: Iterable[Figure]) -> tuple[list[str], list[str]]:
    """A line for each figure of each test, and those whose limit is nearer than their values are to each other."""
    found: dict[tuple[str, str], list[Figure]] = defaultdict(list)
    for figure in figures:
        found[figure.test.split("/", 1)[-1], figure.name].append(figure)
    lines, near = [], []
    for (test, name), same in sorted(found.items()):
        values = [figure.value for figure in same]
        limit = same[0].high if same[0].low is None else same[0].low
        assert limit is not None
        margin = min(abs(value - limit) for value in values)
        line = f"{test}: {name}: {min(values):.4g} to {max(values):.4g}, limit {limit:.4g}"
        lines.append(line)
        if margin < max(values) - min(values):
            near.append(line)
    return lines, near


def _tests(run: Run, folder: Path, options: Sequence[str]) -> tuple[Run, int, str]:
    """Run the tests; the exit code and the output."""
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.learns" in path.read_text("utf-8")]
    line = [sys.executable, "-m", "pytest", "--tb=short", "-m", "learns", *(options or map(str, marked))]
    done = subprocess.run(
        line, cwd=ROOT, env=run.environment(folder / f"{run.seed}.margins"), capture_output=True, text=True, check=False
    )
    return run, done.returncode, done.stdout + done.stderr


def main() -> int:
    """Run all; 0 if every test passed in every run, far from its limits."""
    features = features_here()
    chosen, failed = runs(features), False
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(usable_cores()) as pool:
        for run, code, output in pool.map(lambda run: _tests(run, Path(place), sys.argv[1:]), chosen):
            failed |= code != 0
            _say(f"{run}: {output.strip().splitlines()[-1] if code == 0 else output}")
        kept = [line for path in Path(place).glob("*.margins") for line in path.read_bytes().splitlines()]
    lines, near = table(msgspec.json.decode(line, type=Figure) for line in kept)
    _say("\nWhat the tests found in all runs, and what they ask for:", *lines)
    if near:
        _say("\nTheir limit is nearer than their values are to each other; train at a lower rate, or longer:", *near)
    for cpu in CPUS:
        if lacking := cpu.needs - features:
            _say(f"\nNOT RUN: {cpu.name}; this CPU lacks {', '.join(sorted(lacking))}")
    return int(failed or bool(near))


def _say(*lines: str) -> None:
    print(*lines, sep="\n  ", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
