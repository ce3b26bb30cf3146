"""The dashboard in a real browser: nothing to complain about, and the open round seen to move.

PHONOGRAD_SHOTS=DIR keeps pictures of all pages for people to look at.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.server_agg.rounds.uploads import UploadMetadata
from tests.server_agg.history import write_history
from tests.server_agg.http_uploads import post
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.support.chromium import Tab, chromium
from tests.support.waiting import until

pytestmark = pytest.mark.browser

ACCEPTED = "document.querySelector('#live .big').textContent.trim().replace(/\\s+/g, ' ')"
BLANK = "about:blank?"
PAGES = {"overview": "/", "rounds": "/dashboard/rounds", "round": "/dashboard/rounds/1", "models": "/dashboard/models"}
EVIL = """
document.body.insertAdjacentHTML("beforeend", "<img src=x: onerror='window.evil = 1'><style>body{color:red}</style>");
const script = document.createElement("script");
script.textContent = "window.evil = 1";
document.body.append(script);
"""
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("browser") / "profile") as tab:
        yield tab


@contextlib.contextmanager
def watching(workshop: Workshop, tab: Tab, state: Path, **settings: object) -> Iterator[RunningServer]:
    """A server whose pages the browser leaves, with no complaint, before it stops: an open one asks it for news."""
    with run_server(workshop, state, **settings) as server:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)
        tab.open(BLANK)
        tab.complaints.clear()  # of the test before
        yield server
        tab.open(BLANK)
        assert tab.complaints == []


@pytest.mark.parametrize("rounds", [0, 1, 300])
def test_every_page_on_every_screen(tab: Tab, workshop: Workshop, tmp_path: Path, rounds: int) -> None:
    write_history(workshop, tmp_path / "state", rounds)
    with watching(workshop, tab, tmp_path / "state", clients_per_round=10, deadline_seconds=9e8) as server:
        for number, share in enumerate((0.2, 0.55, 0.93)):
            upload = server.coordinator.create_upload(UploadMetadata(f"phone-{number}", 6000, f"{number:064x}"))
            server.coordinator.folder.upload(upload.id).write_bytes(bytes(int(6000 * share)))
        tab.open(server.admin_url, f"{server.url}/")
        for name, path in PAGES.items():
            tab.open(server.url + path)
            for screen, (width, height) in SCREENS.items():
                for dark in (False, True):
                    tab.resize(width, height, dark)
                    # Tables scroll within themselves; the page is never wider than the screen.
                    assert tab.value("document.documentElement.scrollWidth") == width
                    keep(tab, f"{name}-{rounds}-{screen}-{'dark' if dark else 'light'}")
            assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 27)"
            assert tab.value("document.querySelectorAll('h1').length") == 1
            assert tab.value("document.querySelectorAll('table th:not([scope])').length") == 0


def test_the_open_round_moves(tab: Tab, workshop: Workshop, tmp_path: Path) -> None:
    with watching(workshop, tab, tmp_path / "state") as server, client_of(server.url) as http:
        tab.open(server.admin_url, f"{server.url}/")
        tab.value("window.untouched = true")  # gone if the page were loaded again
        assert tab.value(ACCEPTED) == "0 of 2 updates accepted"
        upload = server.coordinator.create_upload(UploadMetadata("phone9", 4000, "0" * 64))
        path = server.coordinator.folder.upload(upload.id)
        for nbytes in (1000, 3000):
            path.write_bytes(bytes(nbytes))
            tab.until(f"document.querySelector('.uploads progress')?.value === {nbytes}")
        post(http, workshop.update(1), "phone1")
        tab.until(f"{ACCEPTED} === '1 of 2 updates accepted'")
        tab.until("document.querySelector('#live progress.round').value === 1")
        tab.until("document.getElementById('said').textContent === 'Round 1: 1 of 2 updates accepted'")
        assert tab.value("document.querySelectorAll('.chart').length") == 0
        post(http, workshop.update(2), "phone2")
        tab.until(f"{ACCEPTED} === '0 of 2 updates accepted'")
        tab.until("document.title === 'Round 2 · phonograd'")
        tab.until("document.querySelectorAll('.chart').length === 5")
        assert tab.value("window.untouched")


def test_a_server_that_is_gone_is_said_to_be(tab: Tab, workshop: Workshop, tmp_path: Path) -> None:
    with run_server(workshop, tmp_path / "state") as server:
        tab.open(server.admin_url, f"{server.url}/")
        assert tab.value("document.getElementById('lost').hidden")
    tab.until("!document.getElementById('lost').hidden")


def test_without_javascript_a_reload_shows_the_same(tab: Tab, workshop: Workshop, tmp_path: Path) -> None:
    with watching(workshop, tab, tmp_path / "state") as server, client_of(server.url) as http:
        tab.ask("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(server.admin_url, f"{server.url}/")
        assert tab.value("document.querySelector('noscript p').textContent").startswith("Without JavaScript")
        post(http, workshop.update(1), "phone1")
        tab.open(server.admin_url, f"{server.url}/")
        tab.until(f"{ACCEPTED} === '1 of 2 updates accepted'")


def test_a_script_of_somebody_elses_is_not_run(tab: Tab, workshop: Workshop, tmp_path: Path) -> None:
    with watching(workshop, tab, tmp_path / "state") as server:
        tab.open(server.admin_url, f"{server.url}/")
        tab.value(EVIL)
        assert tab.value("window.evil") is None
        assert tab.value("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
        refused = "Content Security Policy"
        until(lambda: tab.value("true") and any(refused in complaint for complaint in tab.complaints))
        tab.complaints.clear()


def keep(tab: Tab, name: str) -> None:
    """A picture, if anybody wants it."""
    if folder := os.environ.get("PHONOGRAD_SHOTS"):
        Path(folder).mkdir(exist_ok=True)
        tab.shoot(Path(folder) / f"{name}.png")
