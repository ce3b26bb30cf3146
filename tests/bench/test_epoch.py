import contextlib
import json
import os
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phonograd.bench.contestants import (
    BenchError,
    Entry,
    Worker,
    of_kind,
    selected_entries,
    with_output_sample,
    worker_environment,
)
from phonograd.bench.epoch import (
    KINDS,
    EpochBenchConfig,
    _disagreements,
    _fastest,
    _fraction,
    bench_epoch,
    disagreements,
    kind_named,
)
from phonograd.bench.peers import backend, pytorch
from phonograd.bench.results import Document, render
from phonograd.bench.worker import Job
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.support.artifacts import exported

pytestmark = pytest.mark.long

SHORT = EpochBenchConfig(steps=3, warm_up=1, threads=1)
MODEL = LanguageModelConfig("lstm", 2000, 16, 16, 2)


def fake(variant: str = "", name: str = "") -> Entry:
    return Entry(name or f"fake {variant}", "tests.bench.fake_peer", variant)


@pytest.fixture
def no_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the ceilings out of tests of other rules: each ceiling is a process."""
    monkeypatch.setattr("phonograd.bench.epoch.CEILINGS", ())


def check_same_windows(of_all_kinds: Document) -> None:
    full = ("native", "ort", "torch lean", "torch eager")
    measured = [one for one in of_all_kinds["contestants"] if one["name"] in full]
    assert tuple(one["name"] for one in measured) == full
    # The same arithmetic, so the same loss after three updates, clipping, carried states and all.
    assert not of_all_kinds["disagreements"]
    losses = [one["loss"] for one in measured]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)
    gflop = of_all_kinds["kinds"]["untied"]["step_gflop"]
    assert gflop == pytest.approx(6 * 200 * (MODEL.parameters - MODEL.vocabulary * MODEL.hidden) / 1e9)
    for one in measured:
        assert len(one["step_seconds"]) == 3
        assert one["median_seconds"] == sorted(one["step_seconds"])[1]
        assert one["epoch_seconds"] == pytest.approx(20 * one["median_seconds"])
        assert one["gflops"] == pytest.approx(gflop / one["median_seconds"])
        assert 0 < one["own_rss_bytes"] < one["peak_rss_bytes"]
    assert measured[2]["about"]["settings"] == ["sparse embedding gradient", "clipping by the rate, fused SGD"]
    assert of_all_kinds["variables"]["MALLOC_TRIM_THRESHOLD_"] == "8000000000"
    first, second = measured[:2]
    ratios = [own / other for own, other in zip(second["step_seconds"], first["step_seconds"], strict=True)]
    assert (second["ratio"], second["ratio_least"]) == (statistics.median(ratios), min(ratios))
    assert (first["ratio"], first["ratio_least"]) == (1, 1)


def check_output_samples(of_all_kinds: Document) -> None:
    found = {one["name"]: one for one in of_all_kinds["contestants"]}
    full, first = found["native"], found["native sampled"]
    assert first["output_words"] < full["output_words"] == 2000
    for name in ("ort", "torch lean"):
        assert found[f"{name} sampled"]["output_words"] == first["output_words"]
        assert found[f"{name} sampled"]["loss"] == pytest.approx(first["loss"], rel=1e-5)
    # The losses agree among those with the same words, and not with the others.
    assert not of_all_kinds["disagreements"]
    assert first["loss"] != pytest.approx(full["loss"], rel=1e-3)
    saved = (2000 - first["output_words"]) * (16 + 1)  # the output layer's rows left out
    assert first["gflop"] == pytest.approx(full["gflop"] - 6 * 200 * saved / 1e9)
    page = render({"epoch.json": {**of_all_kinds, "command": "c"}})
    assert f"{first['output_words']} words" in page


def check_kinds(of_all_kinds: Document) -> None:
    kinds = {one["name"]: one["kind"] for one in of_all_kinds["contestants"] if one["kind"] != "untied"}
    assert kinds == {f"{name} native{how}": name for name in KINDS[1:] for how in ("", " sampled")}
    assert list(of_all_kinds["kinds"]) == list(KINDS)
    gflop = {name: kind["step_gflop"] for name, kind in of_all_kinds["kinds"].items()}
    assert gflop["lwf"] == pytest.approx(gflop["untied"] * 4 / 3)
    assert gflop["gru"] < gflop["untied"] == gflop["tied"]


def check_phases_and_ceilings(of_all_kinds: Document) -> None:
    native = [one for one in of_all_kinds["contestants"] if "native" in one["name"]]
    assert len(native) == 2 * len(KINDS)
    for one in native:
        assert sum(phase["gflop"] for phase in one["phases"]) == pytest.approx(one["gflop"])
        assert all(phase["seconds"] <= max(one["step_seconds"]) for phase in one["phases"])
        assert {"embedding", "recurrent forward", "recurrent backward", "update"} <= {
            phase["name"] for phase in one["phases"]
        }
        for phase in one["phases"]:
            assert (phase["fraction_of_ceiling"] is None) == (phase["gflop"] == 0)
    assert not any(one["phases"] for one in of_all_kinds["contestants"] if one not in native)
    assert {one["name"] for one in of_all_kinds["ceilings"]} >= {"openblas", "torch", "native"}
    assert all(one["gflops"] > 0 for one in of_all_kinds["ceilings"])
    assert tuple(of_all_kinds["ceiling_shape"]) == (200, 16, 2000)
    page = render({"epoch.json": {**of_all_kinds, "command": "c"}})
    assert "| contestant | other | embedding | recurrent forward |" in page


def test_every_kind_by_native_full_and_sampled_and_the_first_by_torch_and_ort() -> None:
    entries = selected_entries(["native", "ort", "torch"], ["lean"])
    entries += with_output_sample(entries, 100)
    entries += [entry for name in KINDS[1:] for entry in of_kind(entries, name)]
    entries += selected_entries(["torch"], ["eager"])
    models = {name: kind_named(name, MODEL) for name in KINDS}
    measured = bench_epoch({name: exported(*kind).folder for name, kind in models.items()}, entries, SHORT)
    check_same_windows(measured)
    check_output_samples(measured)
    check_kinds(measured)
    check_phases_and_ceilings(measured)


def test_a_phase_with_products_must_be_one_of_the_engines(no_ceilings: None, artifacts: Path) -> None:
    with pytest.raises(BenchError, match="phases products, recurrent backward expected, found recurrent forward"):
        bench_epoch({"untied": artifacts}, [fake("phased")], SHORT)


def test_the_ceiling_is_the_fastest_product_in_the_same_precision() -> None:
    fast, slow = Entry("a", "p"), Entry("b", "p")
    reduced = Entry("c bf16", "p", "bf16")
    rates = {slow: [9.0, 1.0, 1.0], fast: [2.0, 2.0, 2.0], reduced: [5.0, 5.0, 5.0]}
    assert _fastest(rates, False) == [2.0, 2.0, 2.0]  # by the median: being fast once does not count
    assert _fastest(rates, True) == [5.0, 5.0, 5.0]
    assert _fastest({slow: [1.0]}, True) == ()
    assert _fraction(10.0, [1.0, 2.0, 4.0], [20.0, 20.0, 20.0]) == 0.25
    assert _fraction(0.0, [1.0], [20.0]) is None
    assert _fraction(1.0, [1.0], ()) is None


def test_folders_that_do_not_go_together_are_refused(artifacts: Path) -> None:
    other = exported(LanguageModelConfig("lstm", 50, 4, 4, 1)).folder
    with pytest.raises(BenchError, match="the same vocabulary, minibatch and steps expected"):
        bench_epoch({"untied": artifacts, "tied": other}, [fake()], SHORT)


def test_the_kernel_set_that_ran_is_named(artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHONOGRAD_KERNELS", "portable")
    assert backend.load(Job("", str(artifacts), "", 1, "native")).about["kernels"] == "portable"


def test_who_cannot_run_here_is_named_and_left_out(no_ceilings: None, artifacts: Path) -> None:
    absent = [fake("absent"), Entry("gone", "phonograd.bench.peers.no_such_module")]
    result = bench_epoch({"untied": artifacts}, [fake(), *absent], SHORT)
    assert [one["name"] for one in result["contestants"]] == ["fake "]
    assert result["left_out"] == {
        "fake absent": "no such chip",
        "gone": "No module named 'phonograd.bench.peers.no_such_module'",
    }
    with pytest.raises(BenchError, match="no contestant can run here: no such chip"):
        bench_epoch({"untied": artifacts}, absent[:1], SHORT)


def test_a_contestant_that_fails_is_named(no_ceilings: None, artifacts: Path) -> None:
    with pytest.raises(BenchError, match="fake broken exited with code 1: ValueError: cannot read it"):
        bench_epoch({"untied": artifacts}, [fake("broken")], SHORT)
    with pytest.raises(BenchError, match="fake -1 exited with code 1: fell over"):
        bench_epoch({"untied": artifacts}, [fake("-1")], SHORT)


def test_losses_that_differ_are_told(no_ceilings: None, artifacts: Path) -> None:
    assert disagreements({"a": 1.0, "b": 1.0005, "c": 1.01, "d": 0.99}, 5e-3) == (
        "the loss of c is 1.01, of a 1",
        "the loss of d is 0.99, of a 1",
    )
    assert disagreements({}, 1e-3) == ()
    assert len(disagreements({"a": 1.0, "b": float("nan")}, 1e-3)) == 1
    # Of longer runs the tenth measured step counts: what comes later is rounding, amplified.
    config = replace(SHORT, steps=11)
    result = bench_epoch({"untied": artifacts}, [fake(), fake("after 10"), fake("after 11")], config)
    assert [line.split(" is ")[0] for line in result["disagreements"]] == ["the loss of fake after 10"]
    # Reduced precision is not held to float32's loss; a name alone does not make it reduced.
    told = [
        {"name": name, "kind": "untied", "output_words": 7, "loss": loss}
        for name, loss in (("native", 1.0), ("native bf16", 2.0), ("like bf16", 2.0))
    ]
    entries = [*selected_entries(["native"], [], ["fp32", "bf16"]), fake("2", "like bf16")]
    assert _disagreements(told, entries, 5e-3) == ("the loss of like bf16 is 2, of native 1",)


def test_a_worker_stands_still_between_its_turns(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.ones((2, 2, 3, 4), np.int64))
    with Worker(fake("0.5"), Job("tests.bench.fake_peer", "", str(tmp_path / "w.npy"), 1, "0.5")) as worker:
        assert worker.left_out() is None
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
    no_ceilings: None,
    artifacts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["bench", "epoch", "--artifacts", str(artifacts), "--backends", "ort"]
    line += ["--steps", "1", "--threads", "1"]
    for entries, code in (([fake()], 0), ([fake(), fake("2")], 16)):
        monkeypatch.setattr(
            "phonograd.commands.bench_epoch.selected_entries", lambda *options, entries=entries: entries
        )
        assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--json"]) == code
        out, err = capsys.readouterr()
        shown, saved = json.loads(out), json.loads((tmp_path / "r.json").read_text())
        assert [one["name"] for one in shown["contestants"]] == [one.name for one in entries]
        assert bool(saved["disagreements"]) == (code == 16) == ("do not compute the same" in err)
        repeat = "--artifacts ARTIFACTS --backends ort --steps 1 --threads 1"
        assert saved["command"] == f"phonograd bench epoch {repeat}"
    assert run(phonograd, ["bench", "epoch", "--backends", "ort,ort"]) == 2


def test_kinds_are_run_by_native_in_each_precision_full_and_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def measure(folders, entries, config, say):
        asked.extend([folders, [(entry.name, entry.kind, entry.output_sample) for entry in entries]])
        raise BenchError("enough")

    monkeypatch.setattr("phonograd.commands.bench_epoch.bench_epoch", measure)
    monkeypatch.setattr(
        "phonograd.commands.bench_epoch.artifacts_or_random",
        lambda console, folder, kind, preset: contextlib.nullcontext(Path(preset, kind)),
    )
    line = ["bench", "epoch", "--backends", "native,torch", "--variants", "eager", "--kinds", "untied,tied"]
    line += ["--preset", "gboard-cifg"]
    assert run(phonograd, [*line, "--precision", "fp32,bf16", "--output-sample", "7"]) == 16
    assert asked == [
        {"untied": Path("gboard-cifg/untied"), "tied": Path("gboard-cifg/tied")},
        [
            ("native", None, None), ("native bf16", None, None), ("torch eager", None, None),
            ("native sampled", None, 7), ("native bf16 sampled", None, 7), ("torch eager sampled", None, 7),
            ("tied native", "tied", None), ("tied native bf16", "tied", None),
            ("tied native sampled", "tied", 7), ("tied native bf16 sampled", "tied", 7),
        ],
    ]  # fmt: skip
    assert run(phonograd, [*line, "--artifacts", "somewhere"]) == 2
    assert run(phonograd, ["bench", "epoch", "--preset", "tiny", "--artifacts", "somewhere"]) == 2


def test_without_a_compiler_torch_runs_eagerly_and_says_so(
    no_ceilings: None, artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    result = bench_epoch({"untied": artifacts}, [fake(), *selected_entries(["torch"], ["compiled"])], SHORT)
    assert "torch.compile does not work here, so torch runs eagerly only: " in result["left_out"]["torch compiled"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own
def test_what_torch_compiles_has_a_sparse_embedding_gradient_too(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytorch, "_require_compiler", lambda: None)  # nothing is compiled before the first step
    compiled = pytorch.load(Job("", str(artifacts), "", 1, "compiled"))
    assert compiled.about["settings"][::2] == ["sparse embedding gradient", "torch.compile"]
