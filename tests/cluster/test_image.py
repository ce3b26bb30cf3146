"""The server's image, from its Dockerfile: its size, and a round on a root folder that nobody can write to."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.image import ROOT, Image, build
from tests.support.command_line import Workplace, workplace
from tests.support.waiting import PATIENCE_SECONDS, until

__all__ = ["workplace"]

pytestmark = pytest.mark.cluster
MOST_MEGABYTES = 250
Inside = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def container(image: Image, folder: Path, artifacts: Path, *options: str) -> Iterator[Inside]:
    """Start the image's command; yields what runs others beside it, until SIGTERM. Its network is its own: the port
    is fixed.
    """
    for name in ("volume", "tmp"):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, int(image.user), int(image.user))
    places = (f"{folder}/volume:{image.volume}", f"{folder}/tmp:/tmp", f"{artifacts}:/artifacts")
    command = image.line(folder, *image.entrypoint, *image.cmd, *options, places=places)
    network = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*network, *command], stdout=log, stderr=log)

    def inside(*line: str) -> subprocess.CompletedProcess[str]:
        assert process.poll() is None, (folder / "log").read_text("utf-8")
        join = ("nsenter", f"--net=/proc/{process.pid}/ns/net", *image.line(folder, *line, places=places))
        return subprocess.run(join, capture_output=True, text=True, check=False)

    try:
        until(lambda: inside(*image.healthcheck).returncode == 0, "the health check's success")
        yield inside
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0, (folder / "log").read_text("utf-8")


def test_the_image_is_small_and_serves_a_round(workplace: Workplace, tmp_path: Path) -> None:
    image = build((ROOT / "Dockerfile").read_text("utf-8"), tmp_path)
    assert image.megabytes() < MOST_MEGABYTES
    artifacts = shutil.copytree(workplace.artifacts, tmp_path / "artifacts")
    with container(image, tmp_path, artifacts, "--clients-per-round", "1") as inside:
        base, update = "/artifacts/weights.safetensors", f"{image.volume}/update"
        state = ("--state", f"{image.volume}/state")
        server = ("--server", f"http://127.0.0.1:{image.expose}")

        def succeed(*line: str) -> str:
            done = inside("phonograd", *line)
            assert done.returncode == 0, done.stderr
            return done.stdout

        token = succeed("tokens", "add", "alice", *state).strip()
        succeed("update", "encode", base, "--base", base, "--tokens", "9", "--out", update)
        assert json.loads(succeed("upload", update, *server, "--token", token, "--json"))["round_closed"]
        assert inside("sh", "-c", "echo > /artifacts/x || echo > /opt/phonograd/x").returncode != 0
        as_root = replace(image, user="0")
        refused = subprocess.run(as_root.line(tmp_path, "touch", "/opt/x"), capture_output=True, text=True, check=False)
        assert "Read-only file system" in refused.stderr


@pytest.mark.parametrize(
    "line", ["ONBUILD RUN true", "RUN --mount=type=cache,target=/x true", "COPY *.md /x", "FROM python:3.13-slim"]
)
def test_a_line_that_cannot_be_run_fails(line: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected"):
        build(f"FROM debian:trixie-slim\n{line}\n", tmp_path)


def test_a_line_that_fails_fails(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build("FROM debian:trixie-slim\nRUN test -e /opt/phonograd\n", tmp_path)
