"""The harness and a server's client where Windows's Python lacks what POSIX has (tests/support/without_posix.py)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from phonograd.api.updates import encode_update
from phonograd.device_runtime.base import files
from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from tests.server_agg.workshop import Workshop, run_server
from tests.support.command_line import Workplace

ROOT = Path(__file__).parents[2]
ADB = """#!/bin/sh
case $1 in version) echo 'Android Debug Bridge version 1.0.41';; *) echo 'List of devices attached';; esac
"""


def windows(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.support.without_posix", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT, env=environment or None)


def succeed(*arguments: object) -> str:
    done = windows(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_says_what_it_does() -> None:
    printed = succeed("every", "--help")
    for name in ("devices", "phone-bench", "phone-round", "upload", "pull", "report", "inspect", "serve", "train"):
        assert f"phonograd {name} [OPTIONS]" in printed, name


def test_a_servers_client(workplace: Workplace, tmp_path: Path) -> None:
    artifacts = open_artifacts(workplace.artifacts)
    base = workplace.artifacts / "weights.safetensors"
    update, pulled, fetched = (tmp_path / name for name in ("an.update", "pulled", "fetched"))
    assert "4,913" in succeed("inspect", workplace.artifacts)
    with run_server(
        Workshop(tmp_path, artifacts.manifest.model, artifacts), tmp_path / "s", clients_per_round=1
    ) as server:
        to = ("--server", server.url, "--token", server.owner.token)
        encode_update(base, base, update, tokens=9)  # on a system that has the engine
        assert json.loads(succeed("upload", update, *to, "--phone", "p1", "--json"))["accepted"]
        report = json.loads(succeed("report", *to, "--json"))
        assert report["rounds"][0]["useful_bytes"] == update.stat().st_size
        succeed("models", *to, "--fetch", "latest", "--out", fetched)
        pulled.write_bytes(base.read_bytes())  # from which the server sends links, that are of no use here
        succeed("pull", *to, pulled)
    assert sha256_of_file(fetched) == sha256_of_file(pulled) == report["rounds"][0]["model_sha256"]


def test_phones_over_adb(tmp_path: Path) -> None:
    """As far as a client that lists no phone gets; its own tests are the harness's."""
    adb = tmp_path / "adb"
    adb.write_text(ADB)
    adb.chmod(0o755)
    done = windows("devices", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (done.returncode, "no phone is connected" in done.stderr) == (20, True)


def test_the_phones_binary_is_written(tmp_path: Path) -> None:
    out = tmp_path / "phonograd-phone"
    document = json.loads(succeed("build-phone", "--out", out, "--json"))
    assert document["sha256"] == sha256_of_file(out)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train", "found AMD64 Windows; run this on Linux"),
        ("update", "found AMD64 Windows; run this on Linux"),
        ("serve", "Linux or macOS expected, found Windows"),
    ],
)
def test_what_needs_linux_says_so(command: str, expected: str, workplace: Workplace, tmp_path: Path) -> None:
    options = {
        "train": (workplace.artifacts, "--user", workplace.user),
        "update": ("show", workplace.user),
        "serve": ("--artifacts", workplace.artifacts, "--state", tmp_path / "state", "--port", "0"),
    }
    done = windows(command, *options[command])
    assert (done.returncode, len(done.stderr.splitlines())) == (10, 1)
    assert expected in done.stderr
    assert not (tmp_path / "state").exists()


def test_reads_by_position_need_no_pread(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    with TensorFile(workplace.artifacts / "weights.safetensors") as file:
        name = list(file.specs)[-1]
        expected = file.read(name).tobytes()
        monkeypatch.delattr("os.preadv")
        assert file.read(name).tobytes() == expected
        assert file.sha256() == sha256_of_file(file.path)


def test_a_file_is_locked_once(tmp_path: Path) -> None:
    """By flock, for two descriptors of one process; the same call on Windows is in test_a_servers_client."""
    with (tmp_path / "lock").open("wb") as first, (tmp_path / "lock").open("wb") as second:
        files.lock_file(first.fileno())
        with pytest.raises(BlockingIOError):
            files.lock_file(second.fileno())
    with (tmp_path / "lock").open("wb") as third:
        files.lock_file(third.fileno())


def test_export_says_which_python_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {}
    for version in ((3, 12, 1), (3, 13, 0), (3, 14, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "version_info", version)
            said[version] = str(MissingExtraError.of_export("export needs onnx", ImportError("no onnx")))
    assert said[3, 12, 1] == "export needs onnx (no onnx); install it with: pip install 'phonograd[export]'"
    for version, found in (((3, 13, 0), "3.13"), ((3, 14, 2), "3.14")):
        assert f"Python 3.10, 3.11 or 3.12 expected, found {found}; in one of those: pip install" in said[version]
