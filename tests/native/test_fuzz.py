"""Every fuzz target on its seeds, and on each of them changed at random, the same in every run."""

import os
import subprocess
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import engine_sources

FUZZ = Path(__file__).parent / "fuzz"
CHANGES = 120  # of each seed; fuzz/run.sh tries more, with coverage
HELPERS = {"planner": ["random_graph", "change_graph"]}


@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.cpp")))
def test_a_fuzz_target_finds_nothing(tmp_path: Path, name: str) -> None:
    files = [FUZZ / f"{file}.cpp" for file in (f"fuzz_{name}", "without_libfuzzer", *HELPERS.get(name, []))]
    tool = build_program(f"fuzz_{name}", [*files, *engine_sources()])
    seeds = sorted((FUZZ / "corpus" / name).iterdir())
    assert seeds
    last = tmp_path / "last"
    line = [tool, last, "1", str(CHANGES), *seeds]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    found = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, f"{found.stderr}\nrepeat it with: {tool} {tmp_path / 'again'} 1 0 {last}"
