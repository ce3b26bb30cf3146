"""Files to and from the stand-in phone."""

import os
from pathlib import Path

import pytest

from tests.phone.stand_in import A53, AdbServer, StandInPhone

pytestmark = pytest.mark.standin
FOLDER = "/data/local/tmp"


def push(adb_server: AdbServer, phone: StandInPhone, local: Path, remote: str) -> None:
    done = adb_server.run("-s", phone.serial, "push", str(local), remote)
    assert done.returncode == 0, done.stdout + done.stderr


def pull(adb_server: AdbServer, phone: StandInPhone, remote: str, local: Path) -> None:
    done = adb_server.run("-s", phone.serial, "pull", remote, str(local))
    assert done.returncode == 0, done.stdout + done.stderr


def refused(adb_server: AdbServer, phone: StandInPhone, *arguments: str) -> str:
    done = adb_server.run("-s", phone.serial, *arguments)
    assert done.returncode == 1
    return done.stdout + done.stderr


def random_file(path: Path, nbytes: int) -> Path:
    path.write_bytes(os.urandom(nbytes))
    return path


@pytest.mark.both_adbs
def test_there_and_back(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    for nbytes in (0, 1, 65535, 65536, 65537, 3_000_000):
        before = phone.counters
        local = random_file(tmp_path / "local", nbytes)
        push(adb_server, phone, local, f"{FOLDER}/new/folder/{nbytes}")
        pull(adb_server, phone, f"{FOLDER}/new/folder/{nbytes}", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == local.read_bytes(), nbytes
        assert phone.counters.pushed - before.pushed == phone.counters.pulled - before.pulled == nbytes


@pytest.mark.both_adbs
def test_an_older_android_speaks_the_first_version_of_everything(adb_server: AdbServer, tmp_path: Path) -> None:
    local = random_file(tmp_path / "local", 100_000)
    with StandInPhone(A53) as phone:
        adb_server.connect(phone)
        push(adb_server, phone, local, f"{FOLDER}/file")
        pull(adb_server, phone, f"{FOLDER}/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == local.read_bytes()


@pytest.mark.both_adbs
def test_modes_and_times_are_kept(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    local = random_file(tmp_path / "program", 10)
    local.chmod(0o755)
    os.utime(local, (1_600_000_000, 1_600_000_000))
    push(adb_server, phone, local, f"{FOLDER}/program")
    done = adb_server.run("-s", phone.serial, "shell", f"stat -c '%a %Y %s %U' {FOLDER}/program")
    assert done.stdout == "777 1600000000 10 shell\n"  # adbd gives everyone what the owner has
    pull_with_times = adb_server.run("-s", phone.serial, "pull", "-a", f"{FOLDER}/program", str(tmp_path / "back"))
    assert pull_with_times.returncode == 0
    assert (tmp_path / "back").stat().st_mtime == 1_600_000_000


def test_folders_there_and_back(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    (tmp_path / "folder/within").mkdir(parents=True)
    for name in ("a", "within/b", "within/ümläut and space"):
        (tmp_path / "folder" / name).write_text(name)
    push(adb_server, phone, tmp_path / "folder", FOLDER)
    pull(adb_server, phone, f"{FOLDER}/folder", tmp_path / "back")
    found = {
        str(path.relative_to(tmp_path / "back")): path.read_text()
        for path in (tmp_path / "back").rglob("*")
        if path.is_file()
    }
    assert found == {name: name for name in ("a", "within/b", "within/ümläut and space")}


@pytest.mark.both_adbs
def test_ls_lists_what_is_there(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    push(adb_server, phone, random_file(tmp_path / "local", 4096), f"{FOLDER}/file")
    done = adb_server.run("-s", phone.serial, "ls", FOLDER)
    names = {line.split()[3]: line.split()[:2] for line in done.stdout.splitlines()}
    assert set(names) == {".", "..", "file"}
    assert (int(names["file"][0], 16) & 0o170000, int(names["file"][1], 16)) == (0o100000, 4096)


def test_a_pushed_file_replaces_an_older_one(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    push(adb_server, phone, random_file(tmp_path / "long", 1000), f"{FOLDER}/file")
    push(adb_server, phone, random_file(tmp_path / "short", 10), f"{FOLDER}/file")
    assert (phone.root / "data/local/tmp/file").read_bytes() == (tmp_path / "short").read_bytes()


@pytest.mark.both_adbs
def test_refusals_are_in_the_words_of_a_real_phone(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    local = str(random_file(tmp_path / "local", 10))
    assert "remote couldn't create file: Read-only file system" in refused(
        adb_server, phone, "push", local, "/system/x"
    )
    assert "remote couldn't create file: Permission denied" in refused(adb_server, phone, "push", local, "/data/x")
    assert "remote secure_mkdirs failed: Permission denied" in refused(adb_server, phone, "push", local, "/data/x/y")
    missing = refused(adb_server, phone, "pull", f"{FOLDER}/missing", str(tmp_path / "back"))
    assert "No such file or directory" in missing or "does not exist" in missing


@pytest.mark.both_adbs
def test_full_storage_refuses_writes(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    local = str(random_file(tmp_path / "local", 1_000_000))
    phone.fill_storage(leave_bytes=500_000)
    assert "remote write failed: No space left on device" in refused(adb_server, phone, "push", local, f"{FOLDER}/file")
    assert not (phone.root / "data/local/tmp/file").exists()
    done = adb_server.run(
        "-s", phone.serial, "shell", f"df -k {FOLDER} | tail -1; dd if=/dev/zero of={FOLDER}/z bs=1000000 count=1"
    )
    assert int(done.stdout.split()[3]) == 500_000 // 4096 * 4
    assert "No space left on device" in done.stderr
    adb_server.run("-s", phone.serial, "shell", f"rm {FOLDER}/z")
    phone.empty_storage()
    push(adb_server, phone, Path(local), f"{FOLDER}/file")
    phone.fill_storage()
    assert "No space left on device" in refused(adb_server, phone, "push", local, f"{FOLDER}/other")
