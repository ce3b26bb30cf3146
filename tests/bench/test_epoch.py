import json
import os
import statistics
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.bench.contestants import BenchError, Entry, Worker, sampled, selected_entries, worker_environment
from phonograd.bench.epoch import EpochBenchConfig, bench_epoch, disagreements
from phonograd.bench.results import SECTIONS
from phonograd.bench.worker import Job
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.support.artifacts import exported

pytestmark = pytest.mark.long

SHORT = EpochBenchConfig(steps=3, warm_up=1, threads=1)


def fake(variant: str = "", name: str = "") -> Entry:
    return Entry(name or f"fake {variant}", "tests.bench.fake_peer", variant)


def test_backends_and_torch_are_measured_on_the_same_windows(artifacts: Path) -> None:
    result = bench_epoch(artifacts, selected_entries(["ort", "torch"], ["eager", "sparse"], ["fp32"], None), SHORT)
    assert [one.name for one in result.contestants] == ["ort", "torch eager", "torch sparse"]
    # The same arithmetic, so the same loss after three updates, clipping, carried states and all.
    assert result.disagreements == ()
    losses = [one.last_loss for one in result.contestants]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    assert result.step_gflop == pytest.approx(6 * 200 * (result.model.parameters - 100 * 16) / 1e9)
    for one in result.contestants:
        assert len(one.step_seconds) == 3
        assert one.median_seconds == sorted(one.step_seconds)[1]
        assert one.epoch_seconds == pytest.approx(20 * one.median_seconds)
        assert one.gflops == pytest.approx(result.step_gflop / one.median_seconds)
        assert 0 < one.own_rss_bytes < one.peak_rss_bytes
    first, second = result.contestants[:2]
    ratios = [own / other for own, other in zip(second.step_seconds, first.step_seconds, strict=True)]
    assert (second.ratio, second.ratio_least) == (statistics.median(ratios), min(ratios))
    assert (first.ratio, first.ratio_least) == (1, 1)


def test_our_backends_are_measured_with_an_output_sample_too() -> None:
    artifacts = exported(LanguageModelConfig("lstm", 2000, 16, 16, 1), TrainingConfig()).folder
    entries = selected_entries(["native", "torch", "ort"], ["eager"], ["fp32"], None)
    entries += sampled(entries, 100)
    result = bench_epoch(artifacts, entries, SHORT)
    full, *_, first, second = result.contestants
    assert [one.name for one in result.contestants] == ["native", "torch eager", "ort", "native sampled", "ort sampled"]
    assert first.output_words == second.output_words < full.output_words == result.model.vocabulary
    # The losses agree among those with the same words, and not with the others.
    assert result.disagreements == ()
    assert second.last_loss == pytest.approx(first.last_loss, rel=1e-5)
    assert first.last_loss != pytest.approx(full.last_loss, rel=1e-3)
    saved = (result.model.vocabulary - first.output_words) * (
        result.model.hidden + 1
    )  # the output layer's rows left out
    assert first.gflops * first.median_seconds == pytest.approx(result.step_gflop - 6 * 200 * saved / 1e9)
    page = "\n".join(SECTIONS["epoch"](msgspec.to_builtins(result)))

    assert f"{first.output_words} words" in page


def test_who_cannot_run_here_is_named_and_left_out(artifacts: Path) -> None:
    absent = [fake("absent"), Entry("gone", "phonograd.bench.peers.no_such_module")]
    result = bench_epoch(artifacts, [fake(), *absent], SHORT)
    assert [one.name for one in result.contestants] == ["fake "]
    assert result.left_out == {
        "fake absent": "no such chip",
        "gone": "No module named 'phonograd.bench.peers.no_such_module'",
    }
    with pytest.raises(BenchError, match="no contestant can run here: no such chip"):
        bench_epoch(artifacts, absent, SHORT)


def test_a_contestant_that_fails_is_named(artifacts: Path) -> None:
    with pytest.raises(BenchError, match="fake broken cannot load the artifacts: cannot read it"):
        bench_epoch(artifacts, [fake(), fake("broken")], SHORT)
    with pytest.raises(BenchError, match="fake -1 exited with code 1: fell over"):
        bench_epoch(artifacts, [fake("-1")], SHORT)
    with pytest.raises(BenchError, match="gone: /no/python cannot be run"):
        bench_epoch(artifacts, [Entry("gone", "phonograd.bench.peers.executorch", python="/no/python")], SHORT)


def test_losses_that_differ_are_told(artifacts: Path) -> None:
    result = bench_epoch(artifacts, [fake(), fake("1.0005"), fake("1.01"), fake("2", "like bf16")], SHORT)
    assert len(result.disagreements) == 2
    assert "fake 1.01" in result.disagreements[0]
    assert disagreements({}, 1e-3) == ()
    assert len(disagreements({"a": 1.0, "b": float("nan")}, 1e-3)) == 1
    # Reduced precision is not held to float32's loss.
    assert selected_entries(["native"], [], ["fp32", "bf16"], None)[1].reduced
    assert not selected_entries(["native"], [], ["fp32"], None)[0].reduced


def test_a_worker_stands_still_between_its_turns(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((2, 2, 3, 4), np.int64))
    with Worker(fake("0.5"), Job("tests.bench.fake_peer", "", str(tmp_path / "w.npy"), 1, "0.5")) as worker:
        worker.wait_until_loaded()
        assert worker.loaded["about"]["versions"] == {"fake": "1"}
        for window in range(2):
            _, status = os.waitpid(worker.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            assert worker.turn(window).loss == 6.0


def test_every_contestant_gets_the_same_malloc_settings_and_threads() -> None:
    environment = worker_environment(3)
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == "3"
    assert environment["MALLOC_MMAP_MAX_"] == "0"


def test_the_command_saves_and_fails_when_losses_differ(
    artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["bench", "epoch", "--artifacts", str(artifacts), "--backends", "ort", "--steps", "1", "--threads", "1"]
    for loss, code in (("1", 0), ("2", 16)):
        entries = [fake(), fake(loss)]
        monkeypatch.setattr("phonograd.commands.bench.selected_entries", lambda *options, entries=entries: entries)
        assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--json"]) == code
        out, err = capsys.readouterr()
        shown, saved = json.loads(out), json.loads((tmp_path / "r.json").read_text())
        assert [one["name"] for one in shown["contestants"]] == ["fake ", f"fake {loss}"]
        assert bool(saved["disagreements"]) == (code == 16) == ("do not compute the same" in err)
        assert saved["command"] == ("phonograd bench epoch --artifacts ARTIFACTS --backends ort --steps 1 --threads 1")
    assert run(phonograd, ["bench", "epoch", "--backends", "ort,ort"]) == 2
