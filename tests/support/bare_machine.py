"""A machine that has Python and make alone, as tests see it that need none of the packages of .ci/packages."""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The tests that may start what .ci/packages installs.
EQUIPPED = ("apk", "browser", "cluster", "phone", "standin", "wheel")
_SYSTEM = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/games/")
_hiding: list[str] = []  # the test that runs, if it is one of a bare machine


@contextlib.contextmanager
def hide_programs(item: pytest.Item) -> Iterator[None]:
    """Take all programs from the test but those of a bare machine, unless a marker says that it needs more.

    They leave PATH, for what the test starts too. If the test starts them by their paths, PermissionError is raised.
    Nothing is hidden on other systems than Debian, where .ci/packages installs nothing.
    """
    if any(item.get_closest_marker(name) for name in EQUIPPED) or not bare_programs():
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{_linked_programs().name}")
        _hiding.append(item.nodeid)
        try:
            yield
        finally:
            _hiding.clear()


@functools.cache
def bare_programs() -> frozenset[str]:
    """Paths of the programs of Debian's essential packages, of make, git and this Python; empty on other systems."""
    listed = _query("--show", "--showformat=${Essential} ${Package}\n") if shutil.which("dpkg-query") else []
    essential = [line.split()[1] for line in listed if line.startswith("yes ")]
    if not essential:
        return frozenset()
    files = {path for path in _query("--listfiles", *essential) if path.startswith(_SYSTEM)}
    # awk is a link that no package lists; a clone's machine has make and git.
    files |= {path for path in map(shutil.which, ("awk", "make", "git")) if path is not None}
    return frozenset({*files, *map(os.path.realpath, files), os.path.realpath(sys.executable)})


@functools.cache
def _linked_programs() -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="phonograd-bare-")
    for path in sorted(bare_programs()):
        link = Path(folder.name) / Path(path).name
        if not link.is_symlink() and os.access(path, os.X_OK) and Path(path).is_file():
            link.symlink_to(path)
    return folder


def _query(*options: str) -> list[str]:
    return subprocess.run(("dpkg-query", *options), check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or not _hiding:
        return
    program = os.fsdecode(arguments[0])
    path = os.path.realpath(program)
    if "/" in program and path.startswith(_SYSTEM) and not {program, path} & bare_programs():
        raise PermissionError(f"{program}: a bare machine lacks it; mark the test with one of {', '.join(EQUIPPED)}")


sys.addaudithook(_refuse)
