"""A simulation's page on a phone's screen, and what it says of simulations that are compared."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

import phonograd
from phonograd.api.simulating import empirical_privacy
from phonograd.device_runtime.base.errors import UsageError
from phonograd.simulation.empirical.page import write_page as write_pairs
from phonograd.simulation.empirical.pairs import PrivacySettings
from phonograd.simulation.folder import read_record
from phonograd.simulation.page import write_page
from tests.simulation.test_simulation import ARTIFACTS, GENERAL, SETTINGS, USERS, run
from tests.support.chromium import chromium


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Page of two simulations with other users and another seed."""
    run(tmp_path / "all", replace(SETTINGS, rounds=2))
    fewer = {name: lines for name, lines in USERS.items() if name != "user-1"}
    settings = replace(SETTINGS, rounds=1, seed=6)
    texts = {"rehearsal": GENERAL, "general_test": GENERAL[:50]}
    phonograd.simulate(ARTIFACTS, fewer, tmp_path / "fewer", settings, workers=1, **texts)
    page = tmp_path / "page.html"
    write_page(page, {name: read_record(tmp_path / name) for name in ("all", "fewer")})
    return page


def test_a_page_shows_settings_and_what_differs(page: Path) -> None:
    shown = page.read_text("utf-8").split("<h2>Settings</h2>")[1]
    assert "Different here: rounds, seed, users." in shown
    assert "on other texts" in shown
    assert "<td>clients_per_round</td><td>4</td><td>4</td>" in shown
    users, _, sent, _ = page.read_text("utf-8").split("</svg>")[:4]
    assert {"all, up", "fewer, up", "MB"} <= set(re.findall(r"<!-- (.+?) -->", sent))
    assert "10^" not in page.read_text("utf-8")  # ticks are plain numbers
    assert re.findall(r"<!-- (\S+) -->", users.split('id="matplotlib.axis_2"')[0]) == ["0", "1", "2", "round"]


def test_fewer_rounds_than_a_folder_holds(tmp_path: Path) -> None:
    run(tmp_path / "two", replace(SETTINGS, rounds=2))
    with pytest.raises(UsageError, match="`rounds` 1: .* holds 2 rounds already"):
        run(tmp_path / "two", replace(SETTINGS, rounds=1))


@pytest.mark.browser
def test_a_page_fits_a_phone(page: Path, tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as tab:
        tab.open(page.as_uri())
        assert tab.fits()
        tables = "[...document.querySelectorAll('.scroll')].slice(0, -1)"  # the last has the settings of every run
        assert tab.value(f"{tables}.every(one => one.scrollWidth <= one.clientWidth)")


@pytest.mark.browser
def test_the_page_of_pairs_fits_a_phone(tmp_path: Path) -> None:
    long = "name" * 40  # no place to break at
    settings = PrivacySettings(
        pairs=2, texts=400, words=3, simulation=phonograd.SimulationSettings(clients_per_round=3)
    )
    pairs = empirical_privacy(ARTIFACTS, {long + name: lines for name, lines in USERS.items()}, settings, workers=1)
    rows = [
        {"user": pair.user, "in place of": pair.other, **dict.fromkeys("abcdefgh", pair.tail.alpha)} for pair in pairs
    ]
    write_pairs(tmp_path / "page.html", pairs, rows)
    with chromium(tmp_path / "profile") as tab:
        tab.open((tmp_path / "page.html").as_uri())
        assert tab.fits()
