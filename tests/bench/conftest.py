import contextlib
import json
import sys
from pathlib import Path

import pytest

from phonograd.bench.worker import run_or_leave_out
from phonograd.export.presets import preset_named
from tests.support.artifacts import exported


@pytest.fixture(scope="session")
def artifacts() -> Path:
    return exported(preset_named("tiny").model, seed=0).folder


class WorkerHere:
    """A contestant's worker without a process: the job runs in this one, and has answered once."""

    def __init__(self, entry, job):
        answers = []
        with contextlib.redirect_stdout(sys.stderr):
            run_or_leave_out(job, lambda **fields: answers.append(json.dumps(fields)))
        [self._answer] = answers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def answer(self):
        return json.loads(self._answer)

    def end(self):
        pass


class BesideHere:
    """Phones beside without a process."""

    def __init__(self, make, *given):
        self._made = make(*given)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def call(self, method, *given):
        return getattr(self._made, method)(*given)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages and masked rounds are computed here: most of their rules need no process."""
    for benchmark in ("aggregate", "masked"):
        monkeypatch.setattr(f"phonograd.bench.{benchmark}.Worker", WorkerHere)
        monkeypatch.setattr(f"phonograd.bench.{benchmark}.in_fresh_process", lambda function, *given: function(*given))
    monkeypatch.setattr("phonograd.bench.peers.own_masked.Beside", BesideHere)
