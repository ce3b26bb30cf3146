import json
from pathlib import Path
from typing import Any

import pytest

from phonograd.bench.environment import this_environment
from phonograd.bench.results import FOLDER, PAGE, load_results, render, result_of, rounded, save_result, tables
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.errors import ArtifactsError

ENVIRONMENT = {"cpu": "Some CPU", "features": ["avx2", "fma"], "cores": 2, "system": "Linux", "python": "3.11.7"}

EPOCH: dict[str, Any] = {
    "kind": "epoch", "environment": ENVIRONMENT, "threads": 2, "command": "phonograd bench epoch",
    "kinds": {
        "untied": {
            "model": {"cell": "lstm", "layers": 2, "hidden": 650, "vocabulary": 30000},
            "training": {"minibatch": 10, "bptt": 20, "clip_norm": 5.0}, "weight_bytes": 183200000,
        },
    },
    "ceiling_shape": [200, 650, 30000], "warm_up": 2,
    "ceilings": [{"name": "torch bf16", "reduced": True, "gflops": 620.4, "about": {"versions": {"torch": "2.13"}}}],
    "left_out": {"torch bf16": "no AVX512-BF16"}, "disagreements": [],
    "contestants": [
        {
            "name": "native", "kind": "untied", "output_words": 30000, "step_seconds": [0.15, 0.16],
            "median_seconds": 0.155, "p10_seconds": 0.151, "p90_seconds": 0.159, "tokens_per_second": 1290.3,
            "gflop": 31.5, "gflops": 203.2, "fraction_of_ceiling": 0.921, "ratio": 1.0, "ratio_least": 1.0,
            "peak_rss_bytes": 260000000, "own_rss_bytes": 230000000,
            "phases": [
                {"name": "embedding", "seconds": 0.0001, "gflop": 0.0, "fraction_of_ceiling": None},
                {"name": "update", "seconds": 0.06, "gflop": 10.5, "fraction_of_ceiling": 0.8},
            ],
            "about": {"versions": {"phonograd": "0.1.0"}, "kernels": "avx2"},
        },
    ],
}  # fmt: skip


def test_the_committed_page_is_what_the_committed_results_give() -> None:
    assert PAGE.read_text("utf-8") == render(load_results(FOLDER))


def test_a_page_of_an_epoch() -> None:
    page = render({"epoch.json": EPOCH})
    assert "## A step: LSTM 2x650, 30,000 words" in page
    assert "Some CPU (avx2, fma), 2 cores, Linux, Python 3.11.7; 2 threads." in page
    assert (
        "| native (phonograd 0.1.0, avx2 kernels) | 1.00 | 1.00 | 0.155 | 0.151 - 0.159 | 1290 | 31.5 | 203 | 92% "
        "| 260 | 1.4 | 230 |" in page
    )
    assert "| torch (torch 2.13) | bf16 | 620 |" in page
    assert "| contestant | embedding | update | the step |" in page
    assert "| native | 0.1 ms | 60 ms, 10.5 GFLOP, 80% | 155 ms, 31.5 GFLOP, 92% |" in page
    assert "Left out: torch bf16 (no AVX512-BF16)." in page
    assert page.endswith("Repeat: `phonograd bench epoch` (`results/epoch.json`).\n")


def test_the_last_figures_of_former_contestants_stay_on_the_page() -> None:
    row = EPOCH["contestants"][0] | {"name": "gone", "ratio": 2.8, "about": {"versions": {"gone": "1.5"}}}
    kept = {"kind": "former", "benchmark": "bench epoch", "date": "2026-11-23", "phonograd": "0.1.0", "first": "native"}
    page = render({"former-epoch.json": {**kept, "model": "LSTM", "contestants": [row]}})
    assert "## Formerly in bench epoch: gone\n\nMeasured on 2026-11-23 beside phonograd 0.1.0: LSTM." in page
    assert "| gone (gone 1.5) | 2.80 | 1.00 | 0.155 | 92% | 260 |" in page
    assert page.endswith("From `results/former-epoch.json`.\n")
    assert "PSS" not in page  # a column of another benchmark


def torch_step(variant: str, ratio: float, *settings: str) -> dict[str, Any]:
    return EPOCH["contestants"][0] | {
        "name": f"torch {variant}",
        "ratio": ratio,
        "phases": [],
        "about": {"settings": settings},
    }


def test_the_best_of_torch_is_named_with_its_settings() -> None:
    steps = [torch_step("eager", 2.4), torch_step("sparse", 2.1, "sparse embedding gradient", "fused SGD")]
    steps += [torch_step("bf16", 1.5, "fused SGD"), torch_step("sparse sampled", 0.7)]
    variables = {"MALLOC_TOP_PAD_": "268435456", "MALLOC_MMAP_MAX_": "0", "OMP_NUM_THREADS": "2"}
    document = {**EPOCH, "contestants": EPOCH["contestants"] + steps, "variables": variables}
    page = render({"epoch.json": document})
    assert "| torch sparse | 2.10 | sparse embedding gradient, fused SGD |\n| torch bf16 | 1.50 | fused SGD |\n" in page
    assert "have MALLOC_MMAP_MAX_=0 MALLOC_TOP_PAD_=268435456, with which glibc keeps freed pages." in page
    assert [row["fastest"] for row in dict(tables(document))["The fastest torch"]] == ["torch sparse", "torch bf16"]
    assert "fastest variant" not in render({"epoch.json": EPOCH})


def test_several_makers_are_in_one_table() -> None:
    other = {**EPOCH, "environment": ENVIRONMENT | {"cpu": "Other CPU", "model": "family 6, model 143"}}
    slower = EPOCH["contestants"][0] | {"ratio": 1.0, "median_seconds": 0.31, "fraction_of_ceiling": 0.73}
    other["contestants"] = [slower, torch_step("sparse", 1.15)]
    page = render({"a.json": EPOCH, "b.json": other, "kernels.json": {**KERNELS, "command": "make bench-kernels"}})
    assert "## A step on Some CPU and Other CPU: LSTM 2x650, 30,000 words\n" in page
    assert (
        "| contestant | Some CPU: time / native | Some CPU: seconds a step | Some CPU: of ceiling "
        "| Other CPU: time / native | Other CPU: seconds a step | Other CPU: of ceiling |" in page
    )
    assert "| native | 1.00 | 0.155 | 92% | 1.00 | 0.310 | 73% |" in page
    assert "| torch sparse | - | - | - | 1.15 | 0.155 | 92% |" in page
    assert "Other CPU (family 6, model 143, avx2, fma), 2 cores" in page
    assert page.count("## A step: LSTM 2x650") == 2
    of_one_name = {**EPOCH, "contestants": [slower | {"about": {"kernels": "avx512"}}]}
    both = render({"a.json": EPOCH, "b.json": of_one_name})
    assert "## A step on Some CPU 1 (avx2) and Some CPU 2 (avx512): LSTM" in both
    model = {"cell": "cifg", "layers": 1, "hidden": 670, "vocabulary": 10000}
    small = {**EPOCH, "kinds": {"untied": EPOCH["kinds"]["untied"] | {"model": model}}}
    assert "## A step on" not in render({"a.json": EPOCH, "b.json": small})
    assert "## A step on Some CPU and Other CPU: LSTM" in render({"a.json": EPOCH, "b.json": other, "c.json": small})


@pytest.mark.parametrize(
    ("cpuinfo", "maker", "model"),
    [
        ("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nmodel name : X\nstepping : 8", "Intel",
         "family 6, model 143, stepping 8"),
        ("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nstepping : 1", "AMD",
         "family 25, model 17, stepping 1"),
        ("CPU implementer : 0x41\nCPU part : 0xd4f", "ARM", "part 0xd4f"),
        ("CPU implementer : 0x99", "0x99", ""),
        ("nothing : 1", "", ""),
    ],
)  # fmt: skip
def test_a_result_has_its_cpus_maker_and_model(cpuinfo: str, maker: str, model: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    found = this_environment(tmp_path / "cpuinfo")
    assert (found.maker, found.model) == (maker, model)
    assert {"maker", "model"} <= result_of("epoch", 1)["environment"].keys()


def test_figures_are_kept_short() -> None:
    assert rounded({"a": 0.123456789, "b": [0.123456789, 2.0], "c": ["x", 7], "d": [], "e": 1 << 40}) == {
        "a": 0.12346, "b": [0.123, 2.0], "c": ["x", 7], "d": [], "e": 1 << 40,
    }  # fmt: skip
    with pytest.raises(ValueError, match="finite"):
        rounded({"a": float("nan")})


def test_results_are_saved_and_made_a_page_by_kind_then_name(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for name in ("z.json", "a.json"):
        save_result(folder / name, EPOCH, "phonograd bench epoch")
    save_result(folder / "kernels.json", KERNELS, "make bench-kernels")
    assert list(load_results(folder)) == ["a.json", "z.json", "kernels.json"]
    assert run(phonograd, ["bench", "results", "--results", str(folder), "--json"]) == 0
    assert (tmp_path / "RESULTS.md").read_text("utf-8") == render(load_results(folder))


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"kind": "poem"}))
    with pytest.raises(
        ArtifactsError,
        match="kind epoch, parity, .*, aggregate, masked, ingest, capacity, simulate, former expected, found 'poem'",
    ):
        load_results(tmp_path)


KERNELS = {
    "kind": "kernels", "environment": ENVIRONMENT, "threads": 1,
    "kernels": [
        {
            "kernel": "gemm_nn", "set": "avx2", "shape": "200x650x30000", "median_seconds": 0.1, "rate": 78.0,
            "unit": "GFLOP/s", "fraction_of_sgemm": 0.88,
        },
        {
            "kernel": "exp", "set": "avx2", "shape": "100000", "median_seconds": 1e-4, "rate": 1.0,
            "unit": "Gelem/s", "fraction_of_sgemm": None,
        },
    ],
}  # fmt: skip


def test_a_page_of_kernels() -> None:
    page = render({"kernels.json": {**KERNELS, "command": "make bench-kernels"}})
    assert "| gemm_nn | avx2 | 200x650x30000 | 100 | 78 | GFLOP/s | 88% |" in page
    assert "| exp | avx2 | 100000 | 0.1 | 1 | Gelem/s | - |" in page
