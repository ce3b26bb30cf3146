import json
import math
from pathlib import Path

import numpy as np
import pytest

from phonograd.bench.contestants import BenchError, Entry, selected_entries
from phonograd.bench.parity import ParityConfig, bench_parity
from phonograd.bench.peers.pytorch import TorchContestant
from phonograd.bench.results import load_results, render
from phonograd.bench.worker import Job
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.export.presets import preset_named
from tests.support.artifacts import exported

pytestmark = pytest.mark.long

SHORT = ParityConfig(steps=2, threads=1)


def fake(variant: str) -> Entry:
    return Entry(f"fake {variant}", "tests.bench.fake_peer", variant)


def test_the_backends_and_torch_agree(artifacts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", "parity", "--artifacts", str(artifacts), "--steps", "3", "--threads", "1"]
    assert run(phonograd, [*line, "--save", str(tmp_path / "parity.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pairs = ["native : ort", "native : torch exact", "ort : torch exact"]
    assert (list(found["loss_errors"]), found["differences"]) == (pairs, [])
    assert found["held"] == ["native : torch exact"]  # these artifacts clip
    assert [len(losses) for losses in found["losses"].values()] == [3] * 3
    assert len(set(found["losses"]["native"])) == 3
    assert [one["tensor"] for one in found["tensors"]] == [
        spec.name for spec in preset_named("tiny").model.tensor_specs()
    ]
    for one in found["tensors"]:
        assert one["moved"] > 1e-4, one["tensor"]  # so that to leave it alone would be seen
        assert list(one["errors"]) == pairs
        assert all(0 <= error <= 1e-5 for error in one["errors"].values())
    page = render(load_results(tmp_path))
    assert "| tensor | moved | native : ort | native : torch exact | ort : torch exact |" in page
    assert (
        "Repeat: `phonograd bench parity --artifacts ARTIFACTS --steps 3 --threads 1` (`results/parity.json`," in page
    )


def test_they_agree_with_an_output_sample(capsys: pytest.CaptureFixture[str]) -> None:
    artifacts = exported(LanguageModelConfig("lstm", 2000, 16, 16, 1), TrainingConfig()).folder
    line = ["bench", "parity", "--artifacts", str(artifacts), "--steps", "3", "--threads", "1", "--json"]
    assert run(phonograd, [*line, "--output-sample", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["output_sample"], found["differences"]) == (100, [])
    full = 20 * math.log(2000)  # of 20 steps, over all words
    assert found["losses"]["native"][0] != pytest.approx(full, rel=1e-3)
    assert all(0 <= error <= 1e-5 for one in found["tensors"] for error in one["errors"].values())


def test_what_differs_is_named(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench_parity(artifacts, [fake("1"), fake("1.000001")], SHORT)["differences"] == []
    result = bench_parity(artifacts, [fake("1"), fake("1.001"), fake("absent")], SHORT)
    assert result["left_out"] == {"fake absent": "no such chip"}
    first, *_, last = result["differences"]
    assert len(result["differences"]) == len(result["tensors"]) + 1
    assert first == "embedding.weight of fake 1 : fake 1.001 differ by 0.001"
    assert last == "losses of fake 1 : fake 1.001 differ by 0.001"
    assert result["tensors"][0]["errors"] == {"fake 1 : fake 1.001": pytest.approx(1e-3, rel=1e-2)}
    monkeypatch.setattr("phonograd.commands.bench.selected_entries", lambda *options: [fake("1"), fake("1.001")])
    line = ["bench", "parity", "--artifacts", str(artifacts), "--backends", "ort", "--json"]
    assert run(phonograd, line) == 16
    out, err = capsys.readouterr()
    assert json.loads(out)["steps"] == 10
    assert "the runtimes do not compute the same: embedding.weight of fake 1 : fake 1.001 differ by 0.001; " in err


def test_what_cannot_be_compared_is_refused(artifacts: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="two runtimes are needed; no such chip"):
        bench_parity(artifacts, [fake("1"), fake("absent")], SHORT)
    with pytest.raises(BenchError, match="fake nan: a loss is not finite"):
        bench_parity(artifacts, [fake("1"), fake("nan")], SHORT)
    with pytest.raises(BenchError, match="embedding.weight: a weight is not finite; the learning rate may be too high"):
        bench_parity(artifacts, [fake("1"), fake("overflows")], SHORT)
    model = preset_named("tiny").model
    folder = exported(model, TrainingConfig(dropout=0.5)).folder
    with pytest.raises(BenchError, match="dropout 0 expected"):
        bench_parity(folder, selected_entries(["native", "ort"], [], ["fp32"]), SHORT)


def test_pytorch_keeps_a_tied_model_tied() -> None:
    folder = exported(LanguageModelConfig("lstm", 17, 4, 4, 1, tied=True)).folder
    contestant = TorchContestant(Job("", str(folder), "", 1, "exact"))
    before = contestant.weights()["embedding.weight"]
    tokens = np.zeros((20, 10), np.int64)
    contestant.step(tokens, tokens + 5)
    moved = (contestant.weights()["embedding.weight"] != before).any(axis=1)
    assert moved.all()  # as the decoder; as the embedding, row 0 alone
