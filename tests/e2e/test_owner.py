"""Commands on the machine of a server, for the user who started it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_agg.workshop import client_of, small_workshop
from tests.support.command_line import Run
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def started(tmp_path: Path) -> Iterator[dict[str, str]]:
    workshop = small_workshop(tmp_path)
    line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", workshop.artifacts.folder, "--state"]
    line += [tmp_path / "state", "--port", "0", "--json"]
    with subprocess.Popen([*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert "dashboard, for you alone: http://127.0.0.1:" in said


def test_local_commands_act_for_whoever_started_the_server(
    started: dict[str, str], phono: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = ("--server", started["url"], "--json")
    assert phono("rollback", "0", *there).document["round"] == 2
    assert len(phono("report", *there).document["rounds"]) == 2
    assert len(phono("models", *there).document) == 1
    assert phono("tokens", "add", "phone1", *there).document["name"] == "phone1"
    with client_of(started["url"], {}) as browser:
        assert browser.get(started["admin_url"], follow_redirects=True).status_code == 200
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of-another-user"))
    refused = phono("rollback", "0", *there)
    assert (refused.code, "an administrator's token expected" in refused.err) == (8, True)
