"""examples/c/round.c, compiled as its head says and run: on this machine, and with the arm64 library under qemu."""

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.native_build import build_arm64_library, build_host_library
from phonograd.device_runtime.native_build.checks import check_arm64_library
from phonograd.device_runtime.native_build.compiler import COMPILER_CACHE, compiler_cache, find_zig
from phonograd.device_runtime.native_build.targets import ARM64, HOST, NATIVE, Target
from tests.phone.stand_in.debs import programs
from tests.support.emulated import WITHOUT_SME
from tests.support.phone_command import STEPS, Place, text_of

SOURCE = Path(__file__).parents[2] / "examples" / "c" / "round.c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2")


def compile_example(folder: Path, target: Target) -> Path:
    """The example beside the library."""
    program = folder / "round"
    linked = (folder / "libphonograd.so", "-Wl,-rpath,$ORIGIN", "-o", program)
    line = (find_zig(), "cc", "-target", target.triple, *STRICT, "-I", NATIVE / "include", SOURCE, *linked)
    with tempfile.TemporaryDirectory() as copies:
        caches = {COMPILER_CACHE: compiler_cache(), "ZIG_LOCAL_CACHE_DIR": copies}
        subprocess.run([*map(str, line)], env=os.environ | caches, check=True)
    moved = folder / "moved"  # the program finds the library beside itself, wherever both are
    moved.mkdir()
    (folder / "libphonograd.so").rename(moved / "libphonograd.so")
    return program.rename(moved / "round")


@functools.cache
def built_here() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="phonograd-tests-"))
    atexit.register(shutil.rmtree, folder)
    build_host_library(folder / "libphonograd.so")
    return compile_example(folder, HOST)


def here(folder: Path) -> list[str]:
    del folder  # nobody changes the program: all tests run the same
    return [str(built_here())]


def arm64(folder: Path) -> list[str]:
    """Run with Debian's libc6 for arm64, as the stand-in phone has it."""
    build_arm64_library(folder / "libphonograd.so")
    libc = programs()["libc.so.6"].parent
    loader = programs()["ld-linux-aarch64.so.1"]
    return [
        *("qemu-aarch64", "-cpu", WITHOUT_SME),
        str(loader),
        "--library-path",
        f"{folder / 'moved'}:{libc}",
        str(compile_example(folder, ARM64)),
    ]


@pytest.mark.parametrize("build", [here, pytest.param(arm64, marks=pytest.mark.phone)])
def test_a_whole_round_in_c(place: Place, tmp_path: Path, build: Callable[[Path], list[str]]) -> None:
    line = build(tmp_path)
    words = (
        place.artifacts.folder,
        place.user,
        place.general,
        tmp_path / "state",
        tmp_path / "out",
        tmp_path / "update",
    )
    done = subprocess.run([*line, *map(str, words)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, *steps, report, one, two, three = done.stdout.splitlines()
    found = json.loads(report)
    assert first.startswith("V 600, T 5, B 3, ")
    assert first.endswith(f"kernels {found['kernels']}")
    assert len(steps) == found["steps"] > STEPS
    assert not (tmp_path / "state" / "state.safetensors").exists()
    job = ("--rehearsal", place.general, "--seed", 5, "--codec", "delta-int8", "--update", tmp_path / "phone")
    expected = place.train(*job).only("report")
    assert found["update"]["nbytes"] == expected["update"]["nbytes"]
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    predicted = place.run("predict", place.artifacts.folder, "--weights", tmp_path / "out").only("suggestions")["words"]
    assert [one, two, three] == [f"{word['word']}: {100 * word['probability']:.1f} %" for word in predicted]
    if found["kernels"] == expected["kernels"]:
        assert (tmp_path / "update").read_bytes() == (tmp_path / "phone").read_bytes()


@pytest.mark.long
def test_the_example_stops_and_resumes(place: Place, tmp_path: Path) -> None:
    line = here(tmp_path)
    long = tmp_path / "long"
    long.write_bytes(text_of(3, 1500))
    words = [str(word) for word in (place.artifacts.folder, long, place.general)]
    outputs = ("a", "out", "whole"), ("b", "out", "update")
    whole, resumed = ([*line, *words, *(str(tmp_path / name) for name in names)] for names in outputs)
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)
    # The pipe is too small for all steps: the process is still there when the signal comes.
    with subprocess.Popen(resumed, stdout=subprocess.PIPE, bufsize=0, pipesize=4096) as process:
        assert process.stdout is not None
        while b"step 3 " not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().endswith(b"cancelled; the same command resumes\n")
    assert process.returncode == 0
    done = subprocess.run(resumed, check=True, capture_output=True, text=True)
    assert 2 < json.loads(done.stdout.splitlines()[-4])["resumed_at"] < 400
    assert (tmp_path / "update").read_bytes() == (tmp_path / "whole").read_bytes()


def test_the_example_says_what_is_wrong(place: Place, tmp_path: Path) -> None:
    line = here(tmp_path)
    assert subprocess.run(line, capture_output=True, check=False).returncode == 2
    words = (tmp_path / "none", place.user, place.general, tmp_path / "state", tmp_path / "out", tmp_path / "update")
    done = subprocess.run([*line, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert done.stderr.startswith(f"round: {tmp_path / 'none'}/manifest.json: not found (no such folder)")


@pytest.mark.phone
def test_the_command_builds_the_library(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["build-phone", "--out", str(tmp_path / "phone"), "--library", str(tmp_path / "libphonograd.so")]
    assert run(phonograd, [*line, "--json"]) == 0
    document = json.loads(capfd.readouterr().out)["library"]
    facts = check_arm64_library(tmp_path / "libphonograd.so")
    assert (document["sha256"], document["glibc"]) == (facts.sha256, "2.17")
    assert {"pg_round_open", "pg_round_train", "pg_round_cancel", "pg_engine_step"} <= set(document["exports"])
    assert run(phonograd, line) == 0
    assert facts.sha256[:12] in capfd.readouterr().out
