"""The weights that training starts from, when another process replaces, overwrites or cuts short their file."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import BackendOptions, Window
from phonograd.device_runtime.engine.c_abi import find_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.update_file import UpdateFile, UpdateInfo, write_update
from tests.support.phone_command import Outcome, Place, until_step

Change = Callable[[Path], None]


@pytest.fixture
def weights(place: Place, tmp_path: Path) -> Path:
    """A copy of the artifacts' weights with a header of its own, so of another identity."""
    path = tmp_path / "base"
    save_tensors(path, load_tensors(place.artifacts.path(WEIGHTS)), {"round": "7"})
    os.utime(path, ns=(0, 0))
    return path


def replace_weights(path: Path) -> None:
    zeros = {name: np.zeros_like(values) for name, values in load_tensors(path).items()}
    save_tensors(path, zeros)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.125))


def cut_short(path: Path) -> None:
    os.truncate(path, 100)


def fetched_in_place(path: Path) -> None:
    """Overwrite it as `cp` does: emptied first, then as long as before."""
    path.write_bytes(bytes(path.stat().st_size))


CHANGES = pytest.mark.parametrize("change", [overwritten, cut_short, fetched_in_place])


@contextlib.contextmanager
def held_after_start(line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The phone's command once it has its weights and begins; it can't get far before its events are read."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert json.loads(process.stdout.readline())["event"] == "start"
        yield process


def train_with(place: Place, weights: Path, change: Change, *options: object) -> Outcome:
    """Train on the phone's command, changing the weights' file while it runs."""
    with held_after_start(place.train_line("--weights", weights, *options)) as process:
        change(weights)
        out, err = process.communicate()
    return Outcome(process.returncode, [json.loads(line) for line in out.splitlines()], err)


@CHANGES
def test_the_phone_writes_no_update_of_weights_that_changed(
    place: Place, weights: Path, tmp_path: Path, change: Change
) -> None:
    options = ("--state", tmp_path / "state", "--save-every", 3, "--out", tmp_path / "out", "--update", tmp_path / "u")
    found = train_with(place, weights, change, *options)
    assert (found.code, found.err) == (
        6,
        f"phonograd-phone: {weights}: was changed while it was in use; fetch it again and restart\n",
    )
    assert "report" not in {event["event"] for event in found.events}
    assert {path.name for path in tmp_path.iterdir()} == {"base", "state"}


def test_the_phones_update_is_of_the_weights_it_opened(place: Place, weights: Path, tmp_path: Path) -> None:
    before, reference, update = sha256_of_file(weights), tmp_path / "reference", tmp_path / "update"
    assert place.train("--weights", weights, "--seed", 1, "--update", reference).code == 0
    found = train_with(place, weights, replace_weights, "--seed", 1, "--update", update, "--state", tmp_path / "state")
    assert found.code == 0, found.err
    assert sha256_of_file(weights) != before
    assert update.read_bytes() == reference.read_bytes()
    with UpdateFile(update) as sent:
        assert sent.info.base_sha256 == before


def test_an_update_is_not_encoded_against_a_base_that_changed(weights: Path, tmp_path: Path) -> None:
    trained = load_tensors(weights)
    with TensorFile(weights) as base:
        info = UpdateInfo(base.sha256(), 1, 1, "full-f32", 0)
        overwritten(weights)
        with pytest.raises(WeightsError, match="was changed while it was in use"):
            write_update(tmp_path / "update", base, trained, info)
    assert not (tmp_path / "update").exists()


def test_weights_that_are_not_the_manifests_give_no_update(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    shutil.copytree(place.artifacts.folder, folder)
    overwritten(folder / WEIGHTS)
    found = place.run("train", folder, "--user", place.user, "--update", tmp_path / "update")
    assert (found.code, found.events) == (5, [])
    assert f"{folder / WEIGHTS}: SHA-256 " in found.err
    assert "the file was altered, export or copy the folder again" in found.err


FOREIGN = """
import ctypes, mmap, os, sys
from pathlib import Path
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import open_artifacts
engine = NativeBackend(open_artifacts(Path(sys.argv[1])), None, BackendOptions())  # its handler is there from now on
with open(sys.argv[2], "w+b") as file:
    file.truncate(4096)
    mapping = mmap.mmap(file.fileno(), 4096)
    file.truncate(0)
    mapping[0]
"""


def test_a_bus_error_elsewhere_ends_the_process_as_ever(place: Place, tmp_path: Path) -> None:
    find_library()
    line = [sys.executable, "-X", "faulthandler=0", "-c", FOREIGN, place.artifacts.folder, tmp_path / "file"]
    done = subprocess.run([*map(str, line)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGBUS, done.stderr


def test_states_are_for_their_owner_alone(place: Place, tmp_path: Path) -> None:
    """A state reveals the text. The umask of this test would let everyone read."""
    before = os.umask(0)
    try:
        stopped = until_step(place.train_line("--state", tmp_path / "state", "--save-every", 1), 3, signal.SIGTERM)
    finally:
        os.umask(before)
    assert stopped.code == 143
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "state.safetensors").stat().st_mode & 0o777 == 0o600


def test_the_step_after_a_change_is_refused(place: Place, weights: Path) -> None:
    training = place.artifacts.manifest.training
    tokens = np.ones((training.bptt, training.minibatch), np.int64)
    with contextlib.closing(NativeBackend(place.artifacts, weights, BackendOptions(threads=1))) as engine:
        engine.step(Window(tokens, tokens), 0.1)
        overwritten(weights)
        with pytest.raises(WeightsError, match="was changed while it was in use"):
            engine.step(Window(tokens, tokens), 0.1)
