"""The phone binary's system calls: seccomp ends an app's process at any that Android's own C library has no use for.

The binary is of musl, not of Android's C library. A shell over adb has no such filter.
"""

import re
import subprocess
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import build_emulator_binary, build_phone_binary
from tests.support.emulated import WITHOUT_SME
from tests.support.phone_command import Place, make_place, outputs

pytestmark = pytest.mark.apk

# Of the filter for arm64 apps (bionic: SYSCALLS.TXT and the allow lists, Android 8 and all later), what is used here.
APP_FILTER = """
    clock_gettime clock_nanosleep clone close exit exit_group faccessat fcntl flock fstat fsync ftruncate futex
    getdents64 getpid getpriority gettid ioctl lseek madvise mkdirat mmap mprotect mremap munmap newfstatat openat prctl
    pread64 pwrite64 read readlinkat readv renameat rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait
    sched_getaffinity sched_setaffinity sched_yield set_tid_address setpriority sysinfo tkill unlinkat write writev
"""
ALLOWED = frozenset(APP_FILTER.split())
# Of the filter for x86-64 apps, in the emulator, what arm64 does not have. It has no stat, rename, unlink and the like.
ALLOWED_IN_EMULATOR = ALLOWED | {"arch_prctl", "open"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("phone"))


def calls(*words: object, emulator: str = "qemu-aarch64") -> set[str]:
    """The names of the system calls of an aarch64 program, or another `emulator`'s, that ends well."""
    cpu = ("-cpu", WITHOUT_SME) if emulator == "qemu-aarch64" else ()
    line = [emulator, *cpu, "-strace", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, errors="replace", check=False)
    # Threads may write into each other's lines: a name that no line begins with is left to the next one.
    found = set(re.findall(r"^\d+ ([a-z_0-9]+)\(", done.stderr, re.MULTILINE))
    assert done.returncode == 0, done.stderr[-500:]
    assert {"mmap", "exit_group"} <= found  # what every program does
    return found


def train_line(place: Place, folder: Path) -> list[object]:
    """An epoch with what makes the most system calls."""
    options = ["--rehearsal", place.general, "--state", folder / "state", "--save-every", 3, *outputs(folder)]
    options += ["--threads", 2, "--cores", "all", "--pin-threads", "--duty", 0.9, "--nice", 5]
    return list(place.train_line(*options)[1:])


def test_an_epoch_passes_the_filter_of_apps(place: Place, tmp_path: Path) -> None:
    used = calls(build_phone_binary().path, *train_line(place, tmp_path))
    assert {"clone", "flock", "fsync", "mmap", "renameat", "sched_setaffinity", "setpriority"} <= used
    assert used <= ALLOWED, used - ALLOWED


@pytest.mark.parametrize("codec", ["delta-int8", "rot-q2", "top-rows"])
def test_codecs_pass_it_too(place: Place, tmp_path: Path, codec: str) -> None:
    options = ["--update", tmp_path / "update", "--codec", codec, "--threads", 1]
    used = calls(build_phone_binary().path, *place.train_line(*options)[1:])
    assert used <= ALLOWED, used - ALLOWED


def test_info_and_predictions_pass_it_too(place: Place) -> None:
    phone = build_phone_binary().path
    used = calls(phone, "info") | calls(phone, "predict", place.artifacts.folder, "--context", "w1 w2")
    assert used <= ALLOWED, used - ALLOWED


def test_the_emulators_binary_passes_its_filter(place: Place, tmp_path: Path) -> None:
    program, artifacts = build_emulator_binary().path, place.artifacts.folder
    lines = [train_line(place, tmp_path), ["info"], ["predict", artifacts, "--context", "w1 w2"]]
    lines += [["quantize", artifacts, "--out", tmp_path / "int8.safetensors"]]
    used = set[str]().union(*(calls(program, *line, emulator="qemu-x86_64") for line in lines))
    assert {"newfstatat", "renameat", "unlinkat", "mkdirat"} <= used
    assert used <= ALLOWED_IN_EMULATOR, used - ALLOWED_IN_EMULATOR
