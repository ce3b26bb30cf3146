"""Commands wait for a server that is starting on this machine, and for no other."""

import contextlib
from pathlib import Path

import pytest

from phonograd.console import Console
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.client.waiting import wait_for_server
from tests.support.command_line import Run, Workplace
from tests.support.ports import reserved_port
from tests.support.serving import serving


def test_a_command_waits_for_a_server_that_starts_and_then_knows_its_owner(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    with reserved_port() as port, contextlib.ExitStack() as servers:

        def start(_console: Console, line: str) -> None:
            said.append(line)
            servers.enter_context(serving(workplace.artifacts, tmp_path / "state", "--port", str(port)))

        monkeypatch.setattr(Console, "say", start)
        url = f"http://127.0.0.1:{port}"
        assert len(phono("report", "--server", url, "--json").document["rounds"]) == 1
    assert said == [f"{url} refuses connections; waiting up to 10 s, as it may be starting"]


def test_a_server_that_does_not_start_is_told_after_the_wait(phono: Run) -> None:
    with reserved_port() as port:
        line = ("report", "--server", f"http://localhost:{port}")
        for options, lines in ((("--wait", "0.01"), 2), (("--wait", "0.01", "--quiet"), 1), (("--wait", "0"), 1)):
            outcome = phono(*line, *options)
            assert (outcome.code, len(outcome.err.splitlines())) == (9, lines)
            assert "cannot be reached" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize("url", ["http://192.0.2.1", "https://phonograd.invalid"])
def test_nobody_waits_for_another_machine(url: str) -> None:
    wait_for_server(Connection(url), 10, lambda: pytest.fail("it waited"))
