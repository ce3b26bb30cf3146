"""Whoever started the server: its link, its cookie, its file, and that nobody else is taken for it."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.errors import ServerRefusedError, UsageError
from phonograd.device_runtime.client import server_client as client
from phonograd.device_runtime.client.owner_file import operator_name, owner_file, owner_file_written, with_owner_token
from phonograd.device_runtime.client.server_client import Connection
from phonograd.server_agg.security.owner import Owner
from phonograd.server_agg.storage.audit import AuditLog
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.waiting import PATIENCE_SECONDS

STRANGER: dict[str, str] = {}
TOKEN = "pgd_" + "0" * 16 + "_" + "1" * 64


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].split(";")[0]


def test_the_admin_link_makes_a_browser_an_administrators(server: RunningServer) -> None:
    with client_of(server.url, STRANGER) as browser:
        assert browser.get("/").status_code == 401
        answer = browser.get(server.admin_url)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert attributes == {"httponly", "path=/", "samesite=strict"}
        assert answer.headers["cache-control"] == "no-store"
        assert browser.get("/").status_code == 200  # the client keeps cookies, as a browser does
        rolled_back = browser.post("/v1/rollback?round=0")
        assert rolled_back.status_code == 200
        foreign = browser.post("/v1/rollback?round=0", headers={"Origin": "http://127.0.0.1:1"})
        assert foreign.status_code == 403  # SameSite takes all ports of a host for one site
    done = [entry for entry in AuditLog(server.coordinator.ledger).entries() if entry.outcome == "done"]
    assert [(entry.actor, entry.action) for entry in done] == [(operator_name(), "rollback")]


def test_a_cookie_is_no_token_and_a_token_no_cookie(server: RunningServer) -> None:
    """A browser sends cookies to whatever listens on another port of the machine: the token must not be among them."""
    with client_of(server.url, STRANGER) as http:
        name, _, value = cookie_of(http.get(server.admin_url)).partition("=")
        http.cookies.clear()
        assert name == f"phonograd_admin_{server.port}"
        assert str(server.owner.token) not in value
        assert http.get("/v1/report", headers={"Authorization": f"Bearer {value}"}).status_code == 401
        assert http.get("/v1/report", headers={"Cookie": f"{name}={server.owner.token}"}).status_code == 401
        assert http.get(f"/admin?key={value}").status_code == 403
        assert http.get("/v1/report", headers={"Cookie": f"{name}={value}"}).status_code == 200


def test_another_runs_link_and_cookie_are_refused(workshop: Workshop, state: Path) -> None:
    with run_server(workshop, state) as first, client_of(first.url, STRANGER) as http:
        cookie = cookie_of(http.get(first.admin_url)).partition("=")[2]
    with run_server(workshop, state) as second, client_of(second.url, STRANGER) as http:
        link = first.admin_url.replace(first.url, second.url)
        for key in (link, f"{second.url}/admin", f"{second.url}/admin?key=", f"{second.url}/admin?key=%ff%00"):
            answer = http.get(key)
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
            assert "open the one that the server printed last" in answer.json()["detail"]
        assert http.get("/", headers={"Cookie": f"phonograd_admin_{second.port}={cookie}"}).status_code == 401
        with pytest.raises(ServerRefusedError, match="401"):
            client.report(Connection(second.url, first.owner.token))
        refused = [entry.subject for entry in AuditLog(second.coordinator.ledger).entries() if entry.action == "GET"]
        assert refused.count("/admin") == 4
        assert not any(str(first.owner.token) in str(entry) for entry in AuditLog(second.coordinator.ledger).entries())


def test_over_tls_the_cookie_stays_there() -> None:
    scope = {"type": "http", "scheme": "https", "path": "/", "headers": [], "server": ("127.0.0.1", 8443)}
    answer = Response()
    Owner().give_cookie(Request(scope), answer)
    assert "; Secure" in answer.headers["set-cookie"]


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.usefixtures("state_home")
def test_the_file_is_its_owners_alone_and_goes_with_the_server() -> None:
    path = owner_file(8080)
    with owner_file_written("http://127.0.0.1:8080", TOKEN):
        assert (path.name, path.stat().st_mode & 0o777) == ("8080.json", 0o600)
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert with_owner_token(Connection("http://127.0.0.1:8080")).token == TOKEN
    assert list(path.parent.iterdir()) == []
    with owner_file_written("http://127.0.0.1:8080", TOKEN):
        path.write_text("a later server's")
    assert path.read_text() == "a later server's"


@pytest.mark.usefixtures("state_home")
def test_the_token_goes_to_the_server_that_wrote_it_and_to_no_other() -> None:
    with owner_file_written("http://127.0.0.1:8080", TOKEN):
        for elsewhere in (
            "http://127.0.0.1:8081", "http://127.0.0.2:8080", "http://[::1]:8080", "https://127.0.0.1:8080",
            "http://192.0.2.1:8080", "http://phones.example:8080", "http://127.0.0.1",
        ):  # fmt: skip
            assert with_owner_token(Connection(elsewhere)) == Connection(elsewhere)
        # Another user may listen on the other loopback, which `localhost` is as well.
        assert with_owner_token(Connection("http://localhost:8080")) == Connection("http://127.0.0.1:8080", TOKEN)
        given = Connection("http://127.0.0.1:8080", TOKEN.replace("1", "2"))
        assert with_owner_token(given) == given
    with owner_file_written("https://127.0.0.1:8080", TOKEN):
        secure = Connection("https://localhost:8080", ca_cert=Path("ca.pem"))
        assert with_owner_token(secure) == Connection("https://localhost:8080", TOKEN, Path("ca.pem"))
    with owner_file_written("http://127.0.0.1", TOKEN):
        assert with_owner_token(Connection("http://127.0.0.1:80")).token == TOKEN


@pytest.mark.usefixtures("state_home")
def test_a_file_that_others_can_read_or_that_is_damaged() -> None:
    here, path = Connection("http://127.0.0.1:8080"), owner_file(8080)
    with owner_file_written(here.url, TOKEN):
        path.chmod(0o640)
        with pytest.raises(UsageError, match=r"8080.json: mode 600 expected, found 640: others could read"):
            with_owner_token(here)
        path.chmod(0o600)
        for damaged in (b"", b"{}", b"[]", b'{"url": 1, "token": 2}', b'{"url": "http://[", "token": ""}', b"\xff"):
            path.write_bytes(damaged)
            assert with_owner_token(here) == here


SERVE = """
import os, sys
from pathlib import Path
import uvicorn
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.server import serve
from phonograd.server_agg.settings.server import ServerSettings
artifacts, state, moment, number = sys.argv[1:]
settings = ServerSettings(port=0)
coordinator = Coordinator(open_artifacts(Path(artifacts)), Path(state), settings)
stop = lambda: os.kill(os.getpid(), int(number))
if moment == "before uvicorn listens to signals":
    serving = uvicorn.Server.serve
    def stopped_first(*arguments, **named):
        stop()
        return serving(*arguments, **named)
    uvicorn.Server.serve = stopped_first
def ready(server):
    print(server.url, flush=True)
    if moment == "just after the URL":
        stop()
serve(coordinator, settings, Listener(settings), ready)
coordinator.close()
print("stopped", flush=True)
"""


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("after an upload", signal.SIGTERM),
        pytest.param("just after the URL", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("before uvicorn listens to signals", signal.SIGTERM, marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_the_server_in_order(
    moment: str, number: signal.Signals, workshop: Workshop, tmp_path: Path, state_home: Path
) -> None:
    command = [sys.executable, "-c", SERVE, workshop.artifacts.folder, tmp_path / "state", moment, int(number)]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if moment == "after an upload":
            assert client.upload_update(url, workshop.update(1), "phone1").accepted == 1
            process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    assert list((state_home / "phonograd" / "servers").iterdir()) == []
