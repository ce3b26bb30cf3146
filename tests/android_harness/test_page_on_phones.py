"""The page that a bench of three stand-in phones leaves, in a real browser. PHONOGRAD_SHOTS=DIR keeps its picture."""

import os
from pathlib import Path

import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from tests.phone.stand_in import StandInPhone
from tests.support.chromium import chromium
from tests.support.command_line import Workplace, workplace

__all__ = ["workplace"]

pytestmark = pytest.mark.standin
OPTIONS = ("--epochs", "2", "--warm-up", "1", "--cooldown", "0", "--sample-every", "0.5", "--quiet")


@pytest.mark.parametrize("adb_server", ["adb29"], indirect=True)
def test_the_page_of_three_phones(three_phones: list[StandInPhone], workplace: Workplace, tmp_path: Path) -> None:
    page = tmp_path / "phones.html"
    assert run(phonograd, ["phone-bench", str(workplace.artifacts), *OPTIONS, "--html", str(page)]) == 0
    with chromium(tmp_path / "profile") as tab:
        tab.open(page.as_uri())
        tab.resize(1280, 900)
        assert tab.value("document.querySelectorAll('svg').length") >= 4 + len(three_phones)
        text = tab.value("document.body.textContent")
        for phone in three_phones:
            assert phone.spec.model in text
            assert phone.serial in text
        # The paper's time is drawn only beside the paper's work, and this is a tiny model's.
        assert "another workload" in text or "other workload" in text
        assert tab.value("document.documentElement.scrollWidth") == 1280
        if "PHONOGRAD_SHOTS" in os.environ:
            tab.shoot(Path(os.environ["PHONOGRAD_SHOTS"]) / "stand-ins.png")
        assert tab.complaints == []
