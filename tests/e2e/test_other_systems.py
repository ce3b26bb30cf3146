"""The harness and a server's client where Windows's Python lacks what POSIX has (tests/support/without_posix.py)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from phonograd.api.updates import encode_update
from phonograd.cli import phonograd
from phonograd.device_runtime.base import files
from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from tests.server_agg.workshop import Workshop, run_server
from tests.support.command_line import Workplace

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ADB = """#!/bin/sh
case $1 in version) echo 'Android Debug Bridge version 1.0.41';; *) echo 'List of devices attached';; esac
"""


def windows(*lines: list[object], path: str | None = None) -> tuple[list[int], str, list[str]]:
    """The exit codes of command lines, what they printed, and the lines of stderr."""
    given = json.dumps([[str(part) for part in line] for line in lines])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.without_posix", given],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | ({"PATH": path} if path else {}),
    )
    printed, _, codes = done.stdout.rstrip("\n").rpartition("\n")
    return json.loads(codes), printed, done.stderr.splitlines()


def test_what_a_command_does_and_what_it_lacks(workplace: Workplace, tmp_path: Path) -> None:
    """Phones over adb too, as far as a client without phones gets; the harness tests the rest."""
    adb, state = tmp_path / "adb", tmp_path / "state"
    adb.write_text(ADB)
    adb.chmod(0o755)
    helps = [[name, "--help"] for name in phonograd.list_commands(click.Context(phonograd))]
    codes, printed, said = windows(
        *helps,
        ["devices"],
        ["train", workplace.artifacts, "--user", workplace.user],
        ["serve", "--artifacts", workplace.artifacts, "--state", state, "--port", 0],
        path=f"{tmp_path}:/usr/bin:/bin",
    )
    assert codes == [*[0] * len(helps), 20, 10, 10]
    assert all(f"phonograd {name} [" in printed for name, _ in helps)
    devices, train, serve = said
    assert "no phone is connected" in devices
    assert "found AMD64 Windows; run this on Linux" in train
    assert "Linux or macOS expected, found Windows" in serve
    assert not state.exists()


def test_a_servers_client(workplace: Workplace, tmp_path: Path) -> None:
    artifacts = open_artifacts(workplace.artifacts)
    base = workplace.artifacts / "weights.safetensors"
    update, pulled, fetched = (tmp_path / name for name in ("an.update", "pulled", "fetched"))
    with run_server(
        Workshop(tmp_path, artifacts.manifest.model, artifacts), tmp_path / "s", clients_per_round=1
    ) as server:
        to = ("--server", server.url, "--token", server.owner.token)
        encode_update(base, base, update, tokens=9)  # on a system that has the engine
        pulled.write_bytes(base.read_bytes())  # from which the server sends links, that are of no use here
        codes, printed, _ = windows(
            ["inspect", workplace.artifacts],
            ["upload", update, *to, "--phone", "p1"],
            ["models", *to, "--fetch", "latest", "--out", fetched],
            ["pull", *to, pulled],
            ["report", *to, "--json"],
        )
    assert codes == [0] * 5
    assert "4,913" in printed
    report = json.loads(printed[printed.index("\n{") :])
    assert report["rounds"][0]["useful_bytes"] == update.stat().st_size
    assert sha256_of_file(fetched) == sha256_of_file(pulled) == report["rounds"][0]["model_sha256"]


def test_reads_by_position_need_no_pread(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    with TensorFile(workplace.artifacts / "weights.safetensors") as file:
        name = list(file.specs)[-1]
        expected = file.read(name).tobytes()
        monkeypatch.delattr("os.preadv")
        assert file.read(name).tobytes() == expected
        assert file.sha256() == sha256_of_file(file.path)


def test_a_file_is_locked_once(tmp_path: Path) -> None:
    """Flock locks two descriptors of one process; Windows' call is in test_a_servers_client."""
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
            said[version] = str(MissingExtraError.for_export("export needs onnx", ImportError("no onnx")))
    assert said[3, 12, 1] == "export needs onnx (no onnx); in a checkout of phonograd, run: pip install '.[export]'"
    for version, found in (((3, 13, 0), "3.13"), ((3, 14, 2), "3.14")):
        assert f"Python 3.10, 3.11 or 3.12 expected, found {found}; with one of those, in a checkout" in said[version]
