"""What rows of simulations have: the mean of the last evaluations, and the bytes that phones sent and downloaded."""

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.papers.kinds import simulated
from phonograd.papers.run import Context, Outcome
from tests.papers.finished import SIMULATION, record

RUNS = {"with": simulated.Run(), "without": simulated.Run(rehearsal=False)}
SETTINGS = simulated.Settings(simulation=SIMULATION, runs=RUNS, curve=True)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "simulate_row", lambda *given: record(rehearsal=given[2].rehearsal))


def run(tmp_path: Path, settings: simulated.Settings) -> Outcome:
    return simulated.run(settings, Context(1, tmp_path, tmp_path, 1, None, {}, lambda *_: None))


@pytest.mark.usefixtures("finished")
def test_a_simulation_ends_with_the_mean_of_its_last_evaluations(tmp_path: Path) -> None:
    found = run(tmp_path, SETTINGS)
    assert list(found.rows)[:4] == ["initial", "with, round 2", "with, round 4", "with"]
    assert found.rows["with, round 2"]["general perplexity"] == pytest.approx(18)
    assert found.rows["with"]["general perplexity"] == pytest.approx(math.sqrt(18 * 16))
    assert found.rows["with"]["general perplexity, change in %"] == pytest.approx(100 * (math.sqrt(18 * 16) / 20 - 1))
    assert found.units["with"]["user perplexity"][0] == pytest.approx(math.sqrt(18 * 16) / 2)
    assert len(found.units["with"]["user KSS, %"]) == len(found.units["initial"]["user KSS, %"]) == 3
    assert found.runs["with"] != found.runs["without"]
    assert found.facts["with: rounds"] == found.facts["without: rounds"] == 4
    assert "MB down a round" not in found.rows["with"]


@pytest.mark.usefixtures("finished")
def test_what_a_gain_costs_in_downloads(tmp_path: Path) -> None:
    """No figure where nothing is gained: the users' keystrokes here."""
    row = run(tmp_path, replace(SETTINGS, runs={"with": RUNS["with"]}, downloads=True)).rows["with"]
    assert (row["MB up a round"], row["MB down a round"]) == (1, 2)
    assert row["MB down a % less user perplexity"] == pytest.approx(4 * 2 / (100 * (1 - math.sqrt(18 * 16) / 20)))
    assert "MB down a point of user KSS" not in row
    assert "MB a link" not in row
