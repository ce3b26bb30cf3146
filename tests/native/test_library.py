"""The Python side of the C ABI, against a library that answers with what it was told (echo_abi.cpp)."""

import gc
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from phonograd.device_runtime import native_build
from phonograd.device_runtime.base import errors
from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    BuildError,
    PhonogradError,
    UnsupportedError,
    UsageError,
)
from phonograd.device_runtime.engine import c_abi, load_backend
from phonograd.device_runtime.engine.backend import Backend, BackendOptions
from phonograd.device_runtime.engine.c_abi import NativeLibrary, find_library
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import NATIVE, build_host_library
from phonograd.device_runtime.text.windows import Window

MODEL = LanguageModelConfig("lstm", vocabulary=4, embedding=3, hidden=3, layers=1)
ECHO = Path(__file__).with_name("echo_abi.cpp")


def build_echo(folder: Path, change: str = "") -> Path:
    shutil.copytree(NATIVE / "include", folder / "include")
    (folder / "src").mkdir()
    (folder / "src" / "echo_abi.cpp").write_text(change + ECHO.read_text())
    return build_host_library(root=folder).path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> NativeLibrary:
    return NativeLibrary(build_echo(tmp_path_factory.mktemp("echo") / "tree"))


def artifacts(folder: str = "/artifacts") -> Artifacts:
    """As much of an artifacts folder as the backend looks at: windows of T 2 and B 3."""
    manifest = SimpleNamespace(model=MODEL, training=SimpleNamespace(bptt=2, minibatch=3))
    return cast(Artifacts, SimpleNamespace(folder=Path(folder), manifest=manifest))


def window(first: int = 0) -> Window:
    return Window(np.arange(first, first + 6).reshape(2, 3), np.arange(6).reshape(2, 3))


def test_options_reach_the_engine(library: NativeLibrary) -> None:
    plain = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    assert plain.plan() == "/artifacts|-|threads 2 pin 0 fuse 1 precision 0 seed 0 kernels -"
    options = BackendOptions(7, 2**63 + 1, pin_threads=True, precision="bf16-emulated", kernels="avx2")
    every = NativeBackend(artifacts("/a/é"), Path("/w"), options, fuse=False, library=library)
    assert every.plan() == f"/a/é|/w|threads 7 pin 1 fuse 0 precision 2 seed {2**63 + 1} kernels avx2"
    for backend in (plain, every):
        backend.close()


def test_windows_scores_and_losses_cross_the_border(library: NativeLibrary) -> None:
    backend = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    assert backend.step(window(), 0.5) == 1000 + 100 + 50 + 0.5
    assert backend.step(window(1), 0.25) == 2000 + 200 + 50 + 0.25
    backend.reset()
    assert backend.step(window(), 0.5) == 1000 + 100 + 50 + 0.5
    scores = backend.logits(np.array([[1], [2], [3]]))
    np.testing.assert_array_equal(scores, np.add.outer([10.0, 20.0, 30.0], np.arange(4)))
    assert scores.dtype == np.float32
    assert backend.phases() == {"lstm": 0.25, "output": 0.5}
    backend.close()


def test_windows_that_lie_otherwise_in_memory_are_the_same(library: NativeLibrary) -> None:
    backend = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    straight = window()
    turned = Window(np.asfortranarray(straight.tokens), straight.targets.astype(np.int32))
    assert backend.step(turned, 0.5) == 1000 + 100 + 50 + 0.5
    backend.close()


@pytest.mark.parametrize("what", ["tokens", "targets"])
def test_a_window_of_another_shape_never_reaches_the_engine(library: NativeLibrary, what: str) -> None:
    backend = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    good = window()
    short = {"tokens": good.tokens, "targets": good.targets} | {what: good.tokens[:1]}
    with pytest.raises(ValueError, match=rf"window: {what} of shape \(2, 3\) expected, found \(1, 3\)"):
        backend.step(Window(**short), 0.5)
    with pytest.raises(ValueError, match=r"\[T, B\] expected, found \(6,\)"):
        backend.logits(np.arange(6))
    backend.close()


def test_weights_are_copies_in_their_shapes(library: NativeLibrary) -> None:
    backend = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    before = backend.weights()
    backend.step(window(), 0.5)
    np.testing.assert_array_equal(before["embedding.weight"], np.arange(12, dtype=np.float32).reshape(4, 3))
    assert backend.weights()["embedding.weight"][0, 0] == 100
    backend.close()
    assert before["embedding.weight"][3, 2] == 11


def test_what_an_update_says_reaches_the_engine(library: NativeLibrary) -> None:
    backend = NativeBackend(artifacts(), None, BackendOptions(), library=library)
    written = backend.write_update(
        Path("/u"), base_sha256="ab", round=3, tokens=40, codec="rot-q1", seed=10**18 - 1, one_step=True
    )
    assert written.sha256 == f"/u|ab|rot-q1|3|40|{10**18 - 1}|1"
    assert written.nbytes == 7 * 8 + 88  # the sizes of both structs
    backend.close()


def test_handles_are_freed_once_and_refused_afterwards(library: NativeLibrary) -> None:
    open_now = library.function("pg_engine_parameters")
    gc.collect()
    assert open_now(None) == 0
    backend, graph = NativeBackend(artifacts(), None, BackendOptions(), library=library), None
    graph = NativeGraph(Path("m"), library=library)
    forgotten = NativeGraph(Path("m"), library=library)
    assert open_now(None) == 3
    del forgotten
    gc.collect()
    assert open_now(None) == 2
    for handle in (backend, graph, backend, graph):
        handle.close()
    assert open_now(None) == 0
    with pytest.raises(UsageError, match="found NULL"):
        backend.reset()
    with pytest.raises(UsageError, match="found NULL"):
        graph.run()


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PhonogradError)]


@pytest.mark.parametrize("status", c_abi.ERRORS)
def test_every_status_is_the_error_of_that_exit_code(library: NativeLibrary, status: int) -> None:
    with pytest.raises(PhonogradError, match=f"^fail-{status}: status {status} expected$") as found:
        NativeGraph(Path(f"fail-{status}"), library=library)
    assert found.value.exit_code == status
    assert found.type in KINDS
    with pytest.raises(PhonogradError, match=f"^/fail-{status}: status"):
        NativeBackend(artifacts(f"/fail-{status}"), None, BackendOptions(), library=library)


@pytest.mark.parametrize("status", [1, 99])
def test_another_status_is_a_bug(library: NativeLibrary, status: int) -> None:
    with pytest.raises(RuntimeError, match=f"native engine, status {status}: fail-{status}: status"):
        NativeGraph(Path(f"fail-{status}"), library=library)


def test_values_of_a_graph(library: NativeLibrary) -> None:
    with NativeGraph(Path("m"), library=library) as graph:
        for name, values in (
            ("values-4", np.array([[1.5, -2.0], [3.0, 0.25]], np.float32)),
            ("values-8", np.array([[1 << 40, -7]], np.int64)),
            ("values-1", np.array([[True, False], [False, True]])),
        ):
            graph.set(name, np.asfortranarray(values))
            found = graph.get(name)
            np.testing.assert_array_equal(found, values)
            assert found.dtype == values.dtype
            graph.set(name, np.zeros_like(values))
            np.testing.assert_array_equal(found, values)  # a copy
        graph.run(0.75)
        assert graph.get("rate") == np.float32(0.75)
        assert graph.get("rate").shape == ()
        with pytest.raises(ArtifactsError):
            graph.set("fail-5", np.zeros(1))


def test_what_the_cpu_has(library: NativeLibrary) -> None:
    assert library.cpu_info() == {"features": ["avx2"], "cores": 2, "kernels": ["avx2", "portable"], "bf16": None}


def test_a_library_of_another_abi_is_refused(tmp_path: Path) -> None:
    path = build_echo(tmp_path / "tree", "#define ECHO_ABI_VERSION 99\n")
    with pytest.raises(BuildError, match=f"{path}: ABI version 1 expected, found 99"):
        NativeLibrary(path)


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    with pytest.raises(BuildError, match=f"{path}: cannot be loaded"):
        NativeLibrary(path)
    path.write_bytes(b"\x7fELF")
    with pytest.raises(BuildError, match=f"{path}: cannot be loaded"):
        NativeLibrary(path)


def test_the_wheels_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_build(**_: object) -> None:
        raise AssertionError("built, though the wheel has one")

    packaged = tmp_path / "libphonograd.so"
    packaged.write_bytes(b"")
    monkeypatch.setattr(c_abi, "PACKAGED_LIBRARY", packaged)
    monkeypatch.setattr(c_abi, "build_host_library", no_build)
    assert find_library() == packaged
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnsupportedError, match="x86_64 Linux or aarch64 Linux expected, found riscv64 Linux; run this"):
        find_library()


def test_arm64_linux_has_a_library_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = native_build.BuildResult(tmp_path / "lib", cached=False)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(c_abi, "PACKAGED_LIBRARY", tmp_path / "none")
    monkeypatch.setattr(c_abi, "build_arm64_library", lambda progress: built)
    assert find_library() == built.path


def test_a_checkout_builds_it_on_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = native_build.BuildResult(tmp_path / "lib", cached=False)
    heard: list[object] = []

    def build(progress: object) -> native_build.BuildResult:
        heard.append(progress)
        return built

    monkeypatch.setattr(c_abi, "build_host_library", build)
    assert find_library(print) == built.path  # type: ignore[arg-type]
    assert heard == [print]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (BackendOptions(precision="bf16"), "`precision` fp32 expected, found bf16"),
        (BackendOptions(pin_threads=True), "`pin_threads` False expected, found True"),
        (BackendOptions(kernels="avx2"), "`kernels` None expected, found avx2"),
    ],
)
def test_ort_refuses_what_only_the_native_engine_has(options: BackendOptions, name: str) -> None:
    with pytest.raises(UsageError, match=f"backend ort: {name}; use backend native"):
        load_backend("ort", artifacts(), None, options)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of native, ort"):
        load_backend("cuda", artifacts())


def is_a_backend(engine: NativeBackend) -> Backend:
    return engine  # mypy holds it to the protocol
