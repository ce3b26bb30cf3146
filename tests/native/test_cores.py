"""Which cores `--cores` takes, in which order threads are pinned to them, and what a command says of both."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.support.phone_command import Place, outcome_of

BASE = (NATIVE / "src/base/cpu_cores.cpp",)
HERE = Path(__file__).parent
# (max_khz, capacity, whether its part number is a little core's), core by core from number 0; 0: /sys does not say.
Cores = Sequence[tuple[int, int, int]]
TWO_AND_SIX = [(3_532_800, 830, 0)] * 6 + [(4_320_000, 1024, 0)] * 2
LITTLE_MIDDLE_PRIME = [(1_785_600, 261, 1)] * 4 + [(2_419_200, 871, 0)] * 3 + [(2_841_600, 1024, 0)]
ALIKE = [(2_000_000, 1024, 1)] * 8


@pytest.fixture(scope="module")
def cores_tool() -> Path:
    return build_program("cores_tool", [HERE / "cores_tool.cpp", *BASE, NATIVE / "src/phone/cores.cpp"])


def choose_cores(tool: Path, cores: Cores, which: str) -> str:
    lines = "".join(f"{number} {khz} {capacity} {little}\n" for number, (khz, capacity, little) in enumerate(cores))
    return subprocess.run([tool, which], input=lines, capture_output=True, text=True, check=True).stdout.strip()


def keep_fields(cores: Cores, *what: str) -> Cores:
    """The cores of a phone whose /sys names only these: clock, capacity, design."""
    names = ("clock", "capacity", "design")
    return [
        tuple(value * (name in what) for name, value in zip(names, core, strict=True))  # type: ignore[misc]
        for core in cores
    ]


@pytest.mark.parametrize(
    ("cores", "big", "little"),
    [
        pytest.param(TWO_AND_SIX, "6 7 0 1 2 3 4 5", "6 7 0 1 2 3 4 5", id="2 + 6 big"),
        pytest.param(keep_fields(TWO_AND_SIX, "clock"), "6 7 0 1 2 3 4 5", "6 7 0 1 2 3 4 5", id="2 + 6 big, by clock"),
        pytest.param(LITTLE_MIDDLE_PRIME, "7 4 5 6", "0 1 2 3", id="4 + 3 + prime"),
        pytest.param(keep_fields(LITTLE_MIDDLE_PRIME, "clock"), "7 4 5 6", "0 1 2 3", id="4 + 3 + prime, by clock"),
        pytest.param(ALIKE, "0 1 2 3 4 5 6 7", "0 1 2 3 4 5 6 7", id="of one kind"),
        pytest.param([(2_400_000, 300, 0), (1_800_000, 1024, 0)], "1", "0", id="a fast little core is little"),
        pytest.param([(1_800_000, 1024, 0), (2_400_000, 1024, 0)], "1", "0", id="capacities that were never told"),
        pytest.param([(1_800_000, 0, 1), (2_000_000, 0, 0)], "1", "0", id="a little core nearly as fast"),
        pytest.param([(2_000_000, 0, 1), (2_000_000, 0, 0)], "1", "0", id="a little core as fast"),
        pytest.param([(0, 1024, 0)] * 2, "0 1", "0 1", id="no clocks"),
    ],
)
def test_big_is_what_is_not_much_slower_than_the_fastest(cores_tool: Path, cores: Cores, big: str, little: str) -> None:
    assert choose_cores(cores_tool, cores, "big") == big
    assert choose_cores(cores_tool, cores, "little") == little


def test_a_mask_takes_its_cores_and_all_takes_all(cores_tool: Path) -> None:
    assert choose_cores(cores_tool, LITTLE_MIDDLE_PRIME, "all") == "7 4 5 6 0 1 2 3"
    assert choose_cores(cores_tool, LITTLE_MIDDLE_PRIME, "0x81") == "7 0"
    assert "this process may use none of these cores" in choose_cores(cores_tool, LITTLE_MIDDLE_PRIME, "f00")
    assert "has neither capacity nor frequency" in choose_cores(cores_tool, [(0, 0, 0)] * 4, "big")


def test_a_second_pinned_engine_sees_all_cpus(place: Place) -> None:
    others = (NATIVE / f"src/base/{name}.cpp" for name in ("files", "shares", "thread_pool"))
    sources = [HERE / "pinning_tool.cpp", *BASE, *others]
    tool = build_program("pinning_tool", sources)
    fastest_first = place.run("info").only("info")["choices"]["all"]
    expected = [*fastest_first, len(fastest_first)]
    said = subprocess.run([tool], capture_output=True, text=True, check=True).stdout
    assert [list(map(int, line.split())) for line in said.splitlines()] == [expected, expected]


def test_no_more_threads_than_cores_and_both_are_told(place: Place) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    start = place.train("--threads", 200).events[0]
    assert (start["threads"], start["cores"], start["allowed_cores"]) == (len(allowed), allowed, allowed)
    assert start["pinned"] is False
    one = allowed[-1]
    line = ["taskset", "-c", str(one), *place.train_line("--threads", 4, "--cores", "all", "--pin-threads")]
    start = outcome_of(line).events[0]
    assert (start["threads"], start["cores"], start["allowed_cores"]) == (1, [one], [one])
    assert start["pinned"] is True


def test_threads_are_one_for_each_of_the_chosen_cores(place: Place) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert place.train("--cores", "all").events[0]["threads"] == len(allowed)
    chosen = place.run("train", place.artifacts.folder, "--user", place.user)
    assert chosen.events[0]["threads"] == min(2, len(allowed))
    pinned = place.train("--cores", "all", "--threads", 1, "--pin-threads").events[0]
    fastest_first = place.run("info").only("info")["choices"]["all"]
    assert (pinned["cores"], pinned["allowed_cores"]) == (fastest_first[:1], allowed)
