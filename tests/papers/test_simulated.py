"""Finished simulations are taken in place of runs, if they are those that the experiment asks for."""

import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.kinds import bytes_to_quality, simulated
from phonograd.papers.run import Context, Outcome
from tests.papers.finished import SIMULATION, write_finished

RUNS = {"with": simulated.Run(folder="with"), "without": simulated.Run(rehearsal=False, folder="without")}
SETTINGS = simulated.Settings(simulation=SIMULATION, runs=RUNS, curve=True)


def run(tmp_path: Path, settings: simulated.Settings, **given: Path) -> Outcome:
    return simulated.run(settings, Context(1, tmp_path, tmp_path, 1, None, given, lambda *_: None))


def test_a_simulation_ends_with_the_mean_of_its_last_evaluations(tmp_path: Path) -> None:
    with_, without = (write_finished(tmp_path / name, rehearsal=name == "with") for name in ("with", "without"))
    found = run(tmp_path, SETTINGS, **{"with": with_, "without": without})
    assert list(found.rows)[:4] == ["initial", "with, round 2", "with, round 4", "with"]
    assert found.rows["with, round 2"]["general perplexity"] == pytest.approx(18)
    assert found.rows["with"]["general perplexity"] == pytest.approx(math.sqrt(18 * 16))
    assert found.rows["with"]["general perplexity, change in %"] == pytest.approx(100 * (math.sqrt(18 * 16) / 20 - 1))
    assert found.units["with"]["user perplexity"][0] == pytest.approx(math.sqrt(18 * 16) / 2)
    assert len(found.units["with"]["user KSS, %"]) == len(found.units["initial"]["user KSS, %"]) == 3
    assert found.runs["with"] != found.runs["without"]
    assert found.facts["with: rounds"] == found.facts["without: rounds"] == 4
    assert "MB down" not in found.rows["with"]


def test_what_a_gain_costs_in_downloads(tmp_path: Path) -> None:
    """No figure where nothing is gained: the users' keystrokes here."""
    settings = replace(SETTINGS, runs={"with": RUNS["with"]}, downloads=True)
    row = run(tmp_path, settings, **{"with": write_finished(tmp_path / "with")}).rows["with"]
    assert row["MB down"] == 8  # four rounds of 2
    assert row["MB down a % less user perplexity"] == pytest.approx(8 / (100 * (1 - math.sqrt(18 * 16) / 20)))
    assert "MB down a point of user KSS" not in row


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 2}, "a simulation with seed 1 expected, found 2"),
        ({"text_bytes": 600}, "a simulation with text_bytes 500 expected, found 600"),
        ({"rehearsal": False}, "a simulation with rehearsal expected, found the other"),
        ({"rounds": 1}, "4 rounds expected, found 1; let it finish"),
    ],
)
def test_another_simulation_is_refused(tmp_path: Path, changed: dict[str, int], message: str) -> None:
    settings = simulated.Settings(simulation=SIMULATION, runs={"with": RUNS["with"]})
    folder = write_finished(tmp_path / "with", **changed)
    with pytest.raises(StateError, match=message):
        run(tmp_path, settings, **{"with": folder})


def compare(tmp_path: Path, **given: Path) -> Outcome:
    """rows-f32 beside full-f32, whose models are the same."""
    runs = {
        "rows": simulated.Run(folder="rows"),
        "full": simulated.Run(simulation={"codec": "full-f32"}, folder="full"),
    }
    settings = bytes_to_quality.Settings(SIMULATION, runs, user_perplexity=18, same_models={"full": "rows"})
    return bytes_to_quality.run(settings, Context(1, tmp_path, tmp_path, 1, None, given, lambda *_: None))


def test_a_simulation_of_before_a_setting_had_its_default(tmp_path: Path) -> None:
    folder = write_finished(tmp_path / "with")
    document = json.loads((folder / "simulation.json").read_bytes())
    del document["job"]["deploy_every"]
    (folder / "simulation.json").write_text(json.dumps(document))
    settings = simulated.Settings(simulation=SIMULATION, runs={"with": RUNS["with"]})
    assert run(tmp_path, settings, **{"with": folder}).facts["with: rounds"] == 4


def test_rounds_after_those_asked_for_are_left_out(tmp_path: Path) -> None:
    rows, full = write_finished(tmp_path / "rows", rounds=6), write_finished(tmp_path / "full", codec="full-f32")
    found = compare(tmp_path, rows=rows, full=full)
    assert found.facts["rows: rounds"] == 4
    assert found.rows["rows"]["user perplexity"] == pytest.approx(math.sqrt(18 * 16))
    assert found.rows["rows"]["MB up to the target"] == 2.0
    assert found.rows["rows"]["MB down to the target"] == 4.0


def test_lossless_codecs_share_one_run(tmp_path: Path) -> None:
    rows, full = write_finished(tmp_path / "rows"), write_finished(tmp_path / "full", codec="full-f32")
    document = json.loads((full / "simulation.json").read_text())
    document["rounds"][0]["bytes_up"] = 6 * 10**6  # of two phones
    (full / "simulation.json").write_text(json.dumps(document))
    found = compare(tmp_path, rows=rows, full=full)
    assert found.rows["full"] == found.rows["rows"] | {"MB up in a round": 6.0, "MB up to the target": 12.0}
    document["rounds"][0]["model_sha256"] = "1" * 64
    (full / "simulation.json").write_text(json.dumps(document))
    with pytest.raises(StateError, match="full and rows: the same model expected after round 1, found two"):
        compare(tmp_path, rows=rows, full=full)
