"""What is written is on disk before it has its name, and its name before anybody is told."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import WINDOWS, atomic_file, reserve, write_bytes
from tests.support.disk_diary import DiskDiary


def test_bytes_are_durable_before_their_name_and_that_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"the file of before")
    with monkeypatch.context() as patch:
        diary = DiskDiary(patch, tmp_path)
        write_bytes(tmp_path / "file", b"the new one")
        diary.note("told")
    lines = [re.sub(r"\.file\.[0-9a-f]{8}\.partial", "PARTIAL", line) for line in diary.lines]
    assert lines == ["fsync PARTIAL", "replace file", "fsync .", "told"]
    assert (tmp_path / "file").read_bytes() == b"the new one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("system", ["Linux", "macOS"])
def test_a_file_has_its_size_from_the_start(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if system == "macOS":
        monkeypatch.delattr(os, "posix_fallocate")
    with (tmp_path / "file").open("wb") as file:
        reserve(file.fileno(), 12345)
    assert (tmp_path / "file").read_bytes() == bytes(12345)


def test_a_read_only_mount_refuses_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a file can't be removed either, not even one that is not there."""

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("open", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    with pytest.raises(StorageError, match="file: cannot write: Read-only file system; choose another"):
        write_bytes(tmp_path / "file", b"")


def test_what_a_dead_process_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    stale = tmp_path / ".file.0123abcd.partial"
    others = [tmp_path / name for name in (".other.0123abcd.partial", ".file.partial")]
    for path in (stale, *others):
        path.write_bytes(b"half")
    with atomic_file(tmp_path / "file") as living:
        living.write(b"first")
        write_bytes(tmp_path / "file", b"second")
    assert {path.name for path in tmp_path.iterdir()} == {"file", *(path.name for path in others)}
    assert (tmp_path / "file").read_bytes() == b"first"


KILLED = """
import os, signal, sys
from pathlib import Path
from phonograd.device_runtime.base.files import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(WINDOWS, reason="no SIGKILL")
def test_a_killed_command_leaves_nothing_once_another_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "update")], check=False)
        assert len(list(tmp_path.iterdir())) == 1  # the second process removed what the first left
    write_bytes(tmp_path / "update", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["update"]
