import itertools
from pathlib import Path

import pytest

from phonograd.bench import kernels
from phonograd.bench.kernels import Ceiling, Kernel, NativeKernels, bench_kernels
from phonograd.bench.results import tables
from phonograd.device_runtime.base.errors import UnsupportedError, UsageError


def test_work_of_products_and_maps() -> None:
    product = Kernel("gemm_nt", M=200, N=30_000, K=650)
    assert (product.shape, product.unit, product.work) == ("200x650x30000", "GFLOP/s", pytest.approx(7.8))
    assert (Kernel("exp", N=500).shape, Kernel("exp", N=500).work) == ("500", pytest.approx(5e-7))
    assert (product.threads(4), Kernel("exp", N=500).threads(4)) == (4, 1)


def test_the_ceiling_is_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CEILING", (8, 16, 32))
    assert Ceiling().gflops() > 0


@pytest.mark.parametrize("threads", ["", "many"])
def test_nothing_is_measured_without_a_number_of_threads(threads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.THREADS, threads)
    with pytest.raises(UsageError, match=f"OPENBLAS_NUM_THREADS: a number of threads expected, .* found '{threads}'"):
        bench_kernels()


def test_kernels_become_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.THREADS, "1")
    monkeypatch.setattr(kernels, "CEILING", (8, 16, 32))
    document = bench_kernels([Kernel("gemm_nn", M=30, N=20, K=10), Kernel("exp", N=500)])
    sets = NativeKernels().sets
    assert [row["set"] for row in document["kernels"]] == [*sets, *sets]
    assert [row["fraction_of_sgemm"] is None for row in document["kernels"]] == [False] * len(sets) + [True] * len(sets)
    ((title, rows),) = tables(document)
    assert (title, len(rows)) == ("Kernels", 2 * len(sets))


class FakeEngine:
    def cpu_info(self):
        return {"kernels": ["avx2", "portable"]}

    def function(self, name):
        return lambda: b"no such kernel"


@pytest.fixture
def fake_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "load_library", FakeEngine)
    monkeypatch.setattr(kernels, "find_library", lambda: Path("libc.so.6"))


def test_a_library_without_the_entry_is_refused(fake_engine: None) -> None:
    with pytest.raises(UnsupportedError, match=r"libc\.so\.6: function pg_bench_kernel expected, found none"):
        NativeKernels()


def test_the_engine_measures_each_kernel() -> None:
    engine = NativeKernels()
    assert "portable" in engine.sets
    names = ("gemm_nn", "gemm_nt", "gemm_tn", "gemm_rows", "exp", "sigmoid", "tanh")
    for name, kernel_set in itertools.product(names, engine.sets):
        taken = engine.seconds(kernel_set, Kernel(name, M=30, N=20, K=10), threads=2, repeats=3)
        assert len(taken) == 3 and all(seconds > 0 for seconds in taken)


def test_the_engine_refuses_what_it_can_not_measure() -> None:
    engine = NativeKernels()
    with pytest.raises(UnsupportedError, match="kernel 'gemm_tt'; expected one of gemm_nn"):
        engine.seconds(engine.sets[0], Kernel("gemm_tt"), 1, 1)
    with pytest.raises(UnsupportedError, match="expected at least 1 each"):
        engine.seconds(engine.sets[0], Kernel("gemm_nn", M=0), 1, 1)
    with pytest.raises(UnsupportedError, match="threads: 0; expected 1 to 64"):
        engine.seconds(engine.sets[0], Kernel("exp"), 0, 1)
