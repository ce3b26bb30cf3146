"""What `make numerics-test` runs, and what it calls too near."""

from pathlib import Path

import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import options_of
from tests.native.kernel_sets import compiled_sets
from tests.numerics import CPUS, runs, table
from tests.support.margins import Figure


def figures(*values: float, **limit: float) -> list[Figure]:
    return [Figure("tests/test_x.py::test_y", "loss", value, **limit) for value in values]


def test_a_limit_is_farther_than_the_values_are_apart() -> None:
    lines, near = table(figures(1.0, 1.5, high=2.1))
    assert lines == ["test_x.py::test_y: loss: 1 to 1.5, limit 2.1"]
    assert near == []
    assert table(figures(1.0, 1.5, high=1.9))[1] == ["test_x.py::test_y: loss: 1 to 1.5, limit 1.9"]
    assert table(figures(1.0, 1.5, low=0.6))[1] == ["test_x.py::test_y: loss: 1 to 1.5, limit 0.6"]


def test_every_kind_of_cpu_that_this_one_can_be_runs_once_with_another_seed_and_threads() -> None:
    chosen = runs({"avx2", "fma"})
    assert [(run.cpu.name, run.threads, run.seed) for run in chosen] == [("SSE", 4, 1), ("AVX2", 1, 2)]
    found = chosen[1].environment(Path("margins"))
    assert (found["ATEN_CPU_CAPABILITY"], found["OPENBLAS_CORETYPE"], found["PHONOGRAD_KERNELS"]) == (
        "avx2", "Haswell", "avx2",
    )  # fmt: skip


def test_every_kernel_set_of_x86_is_one_of_a_kind() -> None:
    sets = {one.name for one in compiled_sets() if one.machine != "aarch64" and not one.name.endswith("bf16")}
    assert sets == {cpu.settings["PHONOGRAD_KERNELS"] for cpu in CPUS}


def test_the_environment_names_the_kernel_set_where_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHONOGRAD_KERNELS", "portable")
    assert options_of(BackendOptions()).kernels == b"portable"
    assert options_of(BackendOptions(kernels="avx2")).kernels == b"avx2"
