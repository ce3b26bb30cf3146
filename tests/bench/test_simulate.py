import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phonograd.bench import process_tree
from phonograd.bench.contestants import BenchError
from phonograd.bench.results import render
from phonograd.bench.simulate import SimulateBenchConfig, bench_simulate
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.support.artifacts import exported

SHORT = SimulateBenchConfig(phones=3, text_bytes=200, workers=1, rounds=1)


@pytest.fixture
def folder() -> Path:
    model = LanguageModelConfig("lstm", vocabulary=40, embedding=6, hidden=8, layers=1)
    return exported(model, TrainingConfig(minibatch=2, bptt=5)).folder


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Flower's stand-in, which reports the loss that the native engine will have."""
    monkeypatch.setattr("phonograd.bench.simulate.FLOWER_PEER", "tests.bench.fake_simulator")


@pytest.fixture
def no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.bench.simulate.FLOWER_PEER", "phonograd.bench.peers.no_such_flower")


@pytest.mark.long
def test_all_contestants_train_the_same(no_peer: None, folder: Path) -> None:
    result = bench_simulate(folder, SHORT)
    names = {one["name"] for one in result["contestants"]}
    assert names | set(result["left_out"]) == {"native", "flower"}
    assert "native" in names
    assert result["disagreements"] == []
    assert "pip install 'flwr[simulation]'" in result["left_out"]["flower"]


@pytest.mark.long
def test_a_peer_with_another_loss_disagrees(
    peer: None,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Disagree also on a machine so fast that a round takes less than a tick of the kernel's clock."""
    monkeypatch.setenv("FAKE_SIMULATOR", "1")
    monkeypatch.setattr("phonograd.bench.simulate.cpu_seconds", lambda pid: 0.0)
    line = ["bench", "simulate", "--artifacts", str(folder), "--phones", "3", "--text-bytes", "200", "--rounds", "1"]
    line += ["--workers", "1", "--json", "--save", str(tmp_path / "simulate.json")]
    assert run(phonograd, line) == 16
    out, err = capsys.readouterr()
    assert "flower: loss 1 in round 1, native:" in err
    document = json.loads(out)
    native, flower = document["contestants"]
    assert (native["ratio"], native["cpu_ratio"], flower["versions"]) == (1, 1, {"fake": "1"})
    assert native["round_seconds"] > 0
    assert native["peak_pss_bytes"] >= 0
    page = render({"simulate.json": json.loads((tmp_path / "simulate.json").read_text())})
    assert "## A simulated round: LSTM 1x8, 40 words, 3 phones" in page
    assert "| flower (fake 1) |" in page


@pytest.mark.long
def test_who_lacks_something_of_this_cpu_is_left_out_with_the_reason(
    peer: None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The native engine on a CPU without bf16, which finds that out when the first phone trains."""
    monkeypatch.setenv("FAKE_SIMULATOR", "no such CPU")
    result = bench_simulate(folder, SHORT)
    assert [one["name"] for one in result["contestants"]] == ["native"]
    assert result["left_out"]["flower"].startswith("precision bf16: this CPU has no bf16; pip install")
    monkeypatch.setattr("phonograd.bench.simulate.OWN", "phonograd.bench.peers.no_such_engine")
    with pytest.raises(BenchError, match="no contestant can run here: No module named"):
        bench_simulate(folder, SHORT)


def test_a_tree_is_measured_with_its_children() -> None:
    work = "sum(range(3_000_000)); import sys; print(flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    alone = process_tree.cpu_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the grandchild has worked
        assert len(list(process_tree._tree(process.pid))) == 2
        assert process_tree.cpu_seconds(process.pid) > 0
        assert process_tree.cpu_seconds(os.getpid()) > alone
        assert process_tree.pss_bytes(process.pid) > 1e6
        process.kill()
