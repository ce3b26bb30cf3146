"""Runs that diverge: where they go on, how, and what they leave."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StoppedError, TrainingError
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export import pretrain_native
from phonograd.export.pretrain import MOST_HALVINGS
from phonograd.export.pretrain_config import PretrainConfig
from tests.support.pretraining import NATIVE, TORCH, Recorder, run

both = pytest.mark.parametrize("config", [NATIVE, TORCH], ids=["native", "torch"])
# At an eighth of it, a uniform guess is still better than what is learned; at a sixteenth, it learns.
TOO_HIGH = {"learning_rate": 30.0, "clip_norm": None, "dropout": 0.0}


@both
def test_it_goes_on_at_half_the_rate(tmp_path: Path, config: PretrainConfig) -> None:
    recorder = Recorder()
    result = run(tmp_path / "out", replace(config, **TOO_HIGH), recorder=recorder)
    assert 0 < len(result.diverged) <= MOST_HALVINGS
    assert result.steps == 28
    assert result.best_perplexity < 10  # a uniform guess
    lines = [seen.diverged for seen in recorder.evaluations if seen.diverged]
    assert len(lines) == len(result.diverged)
    assert "goes on from step 0 at 1/2 of the learning rate: " in lines[0]
    assert recorder.steps[0].learning_rate == 30
    assert recorder.steps[-1].learning_rate == 30 / 2 ** len(lines)


@both
def test_it_is_resumed_through_that(tmp_path: Path, config: PretrainConfig) -> None:
    config, recorder = replace(config, **TOO_HIGH), Recorder()
    expected = run(tmp_path / "whole", config, tmp_path / "other", recorder)
    for after in range(1, len(recorder.steps), 3):
        state, out = tmp_path / f"{after}-state", tmp_path / f"{after}"
        with pytest.raises(StoppedError):
            run(out, config, state, Recorder(signal_after=after))
        result = run(out, config, state)
        assert dataclasses.replace(result, weights=expected.weights) == expected
        assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_it_ends_without_an_evaluation(tmp_path: Path) -> None:
    config = replace(NATIVE, **(TOO_HIGH | {"learning_rate": 1e5}))
    for _ in range(2):  # resumed, it says so again
        with pytest.raises(
            TrainingError, match=r"after step 0: step 2: loss .*; diverged \d times before an evaluation"
        ):
            run(tmp_path / "out", config, tmp_path / "state")
        assert not (tmp_path / "out").exists()


def test_it_goes_back_to_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, parts, last = replace(NATIVE, part_steps=1, evaluate_every=2), [0], [4]

    def diverge(settings: RoundSettings) -> Round:
        parts[0] += 1
        if parts[0] > last[0]:
            raise TrainingError("step 1: training diverged")
        return Round(settings)

    monkeypatch.setattr(pretrain_native, "Round", diverge)
    recorder = Recorder()
    result = run(tmp_path / "out", config, tmp_path / "state", recorder)
    best = result.curve[-1]
    assert best.steps in (2, 4)  # as the CPU rounds
    assert best.perplexity_with_unknown == result.best_perplexity_with_unknown
    assert result.steps == best.steps
    assert result.diverged == (4, *[best.steps] * MOST_HALVINGS)
    lines = [seen.diverged for seen in recorder.evaluations if seen.diverged]
    where = f"diverged after step 4, goes on from step {best.steps} at 1/2 of the learning rate: "
    assert lines[0] == f"{where}step 1: training diverged"
    assert f"ends with the weights of step {best.steps}: step 1" in str(lines[-1])
    recorder = Recorder()
    assert run(tmp_path / "out", config, tmp_path / "state", recorder) == result
    assert not recorder.steps


def test_a_perplexity_far_above_the_best_is_divergence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated, evaluate = [0], pretrain_native.NativeTrainer.evaluate

    def spoil(trainer: pretrain_native.NativeTrainer) -> pretrain_native.Perplexities:
        found = evaluate(trainer)
        evaluated[0] += 1
        factor = {2: 2.5, 3: 4.0}.get(evaluated[0], 1.0)
        return pretrain_native.Perplexities(*(value * factor for value in found))

    monkeypatch.setattr(pretrain_native.NativeTrainer, "evaluate", spoil)
    result = run(tmp_path / "out", NATIVE)
    assert result.diverged == (21,)
    assert [point.steps for point in result.curve] == [7, 14, 21, 28]  # those after the best are made again
    assert result.curve[1].perplexity < 1.5 * result.curve[0].perplexity
