"""What links save, from finished simulations; and a run of a few rounds where a simulation has no links."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

import phonograd
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.kinds import links
from phonograd.papers.kinds.simulated import Run
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import SimulationRecord
from tests.papers.finished import SIMULATION, quality, record, write
from tests.support.artifacts import exported

TRAINING = phonograd.TrainingConfig(minibatch=2, bptt=5)
ARTIFACTS = exported(phonograd.LanguageModelConfig("lstm", vocabulary=50, embedding=8, hidden=8, layers=1), TRAINING)
MODEL = ARTIFACTS.path("weights.safetensors").stat().st_size
SETTINGS = links.Settings(SIMULATION, Run(folder="lossless"), Run({"publish": "top-rows"}, folder="lossy"))


def with_links(found: SimulationRecord, nbytes: list[int | None], left_out: float, better: float) -> SimulationRecord:
    rounds = [
        msgspec.structs.replace(
            ended,
            link_bytes=link,
            left_out=left_out,
            quality=None if ended.quality is None else quality(better * (20.0 - ended.number)),
        )
        for ended, link in zip(found.rounds, nbytes, strict=True)
    ]
    return msgspec.structs.replace(found, rounds=tuple(rounds))


LOSSLESS = with_links(record(), [MODEL // 2, None, MODEL // 2, None], 0.0, 1.0)
LOSSY = with_links(record(publish="top-rows"), [MODEL // 100] * 4, 0.25, 1.01)


def run(tmp_path: Path, lossless: SimulationRecord, lossy: SimulationRecord) -> Outcome:
    given = {
        "artifacts": ARTIFACTS.folder,
        "lossless": write(tmp_path / "lossless", lossless),
        "lossy": write(tmp_path / "lossy", lossy),
        "users": tmp_path,
        "rehearsal": tmp_path,
        "general-test": tmp_path,
    }
    return links.run(SETTINGS, Context(1, tmp_path, tmp_path, 1, None, given, lambda *_: None))


def test_links_beside_whole_models(tmp_path: Path) -> None:
    found = run(tmp_path, LOSSLESS, LOSSY)
    rows = found.rows
    assert rows["whole models"] == {"MB down a round": MODEL / 1e6, "times fewer bytes": 1.0}
    assert rows["lossless links"]["times fewer bytes"] == pytest.approx(4 / 3, rel=0.01)
    assert rows["lossy links"]["times fewer bytes"] == pytest.approx(100, rel=0.01)
    assert rows["lossy links"]["user perplexity, % above lossless"] == pytest.approx(1)
    assert rows["lossy links, round 2"]["general perplexity, % above lossless"] == pytest.approx(1)
    assert rows["lossy links, round 2"]["left out, % of a round's change"] == 25
    assert rows["lossless links"]["left out, % of a round's change"] == 0
    assert "user perplexity, % above lossless" not in rows["lossless links"]
    assert found.facts["lossy links: MB that a phone downloaded to take part"] == 1.0


def test_what_lossy_links_cost_is_a_mean_of_the_last_evaluations(tmp_path: Path) -> None:
    last = LOSSY.rounds[-1]
    assert last.quality is not None
    assert last.quality.general is not None
    worse = dataclasses.replace(last.quality.general, perplexity=1.03 / 1.01 * last.quality.general.perplexity)
    quality_of_last = msgspec.structs.replace(last.quality, general=worse)
    rounds = (*LOSSY.rounds[:-1], msgspec.structs.replace(last, quality=quality_of_last))
    lossy = msgspec.structs.replace(LOSSY, rounds=rounds)
    rows = run(tmp_path, LOSSLESS, lossy).rows
    assert rows["lossy links"]["general perplexity, % above lossless"] == pytest.approx(2)  # of 1 and 3
    assert rows["lossy links"]["user perplexity, % above lossless"] == pytest.approx(1)


def test_the_other_links_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="a simulation with publish rows-f32 expected, found top-rows"):
        run(tmp_path, LOSSY, LOSSY)
