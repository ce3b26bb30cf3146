"""A fold in Ray is a fold in one process, for any number of workers, also when some are killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import ray

import phonograd
from phonograd.adapters.ray.cluster import cluster, result
from tests.adapters.places import Descendants, Workshop, kill_workers
from tests.support.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("descendants")]


def test_more_workers_than_updates_write_the_same_file(workshop: Workshop, tmp_path: Path) -> None:
    here = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "here")
    there = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "there", engine="ray", workers=6)
    assert there == here


def test_killed_workers_change_nothing(workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "here")
    module = "phonograd.server_agg.aggregation.fold"
    kills = kill_workers(monkeypatch, tmp_path, module, "Fold", "accumulate", "merge")
    there = phonograd.fold_updates(workshop.updates, workshop.artifacts, tmp_path / "there", engine="ray", workers=3)
    assert kills.done
    assert there == here


def test_a_bad_update_is_the_same_error(workshop: Workshop, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(workshop.updates[0].read_bytes()[:-1])
    for engine in ("local", "ray"):
        with pytest.raises(phonograd.UpdateError, match="bad: "):
            phonograd.fold_updates([*workshop.updates, bad], workshop.artifacts, tmp_path / "out", engine=engine)
    assert not (tmp_path / "out").exists()


def test_a_killed_fold_leaves_no_process(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descendants: Descendants
) -> None:
    """Its worker sleeps over its first update; the fixture sees it end."""
    asleep = kill_workers(monkeypatch, tmp_path, "phonograd.server_agg.aggregation.fold", "Fold", "accumulate")
    monkeypatch.setenv("SLEEPS", "1")
    line = [sys.executable, "-m", "phonograd", "fold", workshop.artifacts.folder, *workshop.updates]
    line += ["--out", tmp_path / "out", "--engine", "ray", "--workers", "1", "--quiet"]
    with tempfile.TemporaryDirectory(prefix="pg-") as place:  # Ray's files, which stay
        process = subprocess.Popen([*map(str, line)], env=os.environ | {"TMPDIR": place})
        until(lambda: asleep.done or process.poll() is not None)  # its title is not always seen
        assert asleep.done
        process.kill()
        assert process.wait() == -signal.SIGKILL
        until(lambda: not descendants.left())


def test_work_that_kills_every_worker_is_an_error() -> None:
    """And so is work that needs its result."""
    with cluster(1):
        dead = ray.remote(max_retries=0)(lambda: os.kill(os.getpid(), signal.SIGKILL)).remote()
        for reference in (dead, ray.remote(lambda result: result).remote(dead)):
            with pytest.raises(phonograd.OutOfMemoryError, match="workers were killed 11 times"):
                result(reference)
