"""What is asked of the operating system and of the C library."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base import system

THREADS = """
import ctypes, sys, threading
from phonograd.device_runtime.base.system import use_one_malloc_arena
if sys.argv[1] == "one":
    use_one_malloc_arena()
libc = ctypes.CDLL(None)
together = threading.Barrier(4)
def allocate():
    together.wait()
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(sys.argv[2].encode(), b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="of glibc alone")
def test_all_threads_allocate_from_one_heap(tmp_path: Path) -> None:
    heaps = {}
    for arenas in ("one", "usual"):
        found = tmp_path / arenas
        subprocess.run([sys.executable, "-c", THREADS, arenas, found], check=True)
        heaps[arenas] = found.read_text().count("<heap nr=")
    assert heaps["one"] == 1
    assert heaps["usual"] > 1  # else this test shows nothing


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_peak_memory_is_the_processs_own_and_not_its_parents() -> None:
    program = "from phonograd.device_runtime.base.system import peak_rss_bytes; print(peak_rss_bytes())"
    parent = "import subprocess, sys; held = b'x' * (300 << 20); subprocess.run([sys.executable, '-c', sys.argv[1]])"
    found = subprocess.run([sys.executable, "-c", parent, program], check=True, capture_output=True, text=True)
    assert 1 << 20 < int(found.stdout) < 150 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_memory_of_what_is_not_known() -> None:
    with pytest.raises(OSError, match="no VmOdd; Linux is needed"):
        system.memory_bytes("VmOdd")


def test_a_c_library_without_arenas_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    system.use_one_malloc_arena()
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", None)
    system.use_one_malloc_arena()


def test_a_server_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(system, "use_one_malloc_arena", lambda: asked.append(True))
    monkeypatch.setattr("phonograd.commands.server.use_one_malloc_arena", system.use_one_malloc_arena)
    missing = ["--artifacts", str(tmp_path / "none"), "--state", str(tmp_path / "state")]
    assert run(phonograd, ["serve", *missing]) != 0
    assert asked == [True]
