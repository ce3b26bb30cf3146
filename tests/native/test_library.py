"""The Python side of the C ABI: which library is loaded, its errors, and what crosses the border."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime import native_build
from phonograd.device_runtime.base import errors
from phonograd.device_runtime.base.errors import (
    BuildError,
    PhonogradError,
    UnsupportedError,
    UsageError,
)
from phonograd.device_runtime.engine import c_abi
from phonograd.device_runtime.engine.backend import Backend, BackendOptions, Window
from phonograd.device_runtime.engine.c_abi import NativeLibrary, find_library
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.native_build import build_host_library
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.support.artifacts import exported

MODEL = LanguageModelConfig("lstm", vocabulary=9, embedding=3, hidden=3, layers=1)
ECHO = Path(__file__).with_name("echo_abi.cpp")


def build_echo(folder: Path, change: str = "") -> Path:
    shutil.copytree(NATIVE / "include", folder / "include")
    (folder / "src").mkdir()
    (folder / "src" / "echo_abi.cpp").write_text(change + ECHO.read_text())
    return build_host_library(root=folder).path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> NativeLibrary:
    return NativeLibrary(build_echo(tmp_path_factory.mktemp("echo") / "tree"))


TRAINING = TrainingConfig(minibatch=3, bptt=2)


@pytest.fixture
def backend() -> Iterator[NativeBackend]:
    with contextlib.closing(NativeBackend(exported(MODEL, TRAINING), None, BackendOptions())) as opened:
        yield opened


def window(first: int = 0) -> Window:
    return Window(np.arange(first, first + 6).reshape(2, 3) % 9, np.arange(6).reshape(2, 3))


def test_windows_that_lie_otherwise_in_memory_are_the_same(backend: NativeBackend) -> None:
    straight = window()
    turned = Window(np.asfortranarray(straight.tokens), straight.targets.astype(np.int32))
    losses = []
    for one in (straight, turned):
        backend.reset()
        losses.append(backend.step(one, 1e-30))
    assert losses[0] == losses[1]


@pytest.mark.parametrize("what", ["tokens", "targets"])
def test_a_window_of_another_shape_never_reaches_the_engine(backend: NativeBackend, what: str) -> None:
    good = window()
    short = {"tokens": good.tokens, "targets": good.targets} | {what: good.tokens[:1]}
    with pytest.raises(ValueError, match=rf"window: {what} of shape \(2, 3\) expected, found \(1, 3\)"):
        backend.step(Window(**short), 0.5)
    with pytest.raises(ValueError, match=r"\[T, B\] expected, found \(6,\)"):
        backend.logits(np.arange(6))


def test_weights_are_copies_in_their_shapes(backend: NativeBackend) -> None:
    before, expected = backend.weights(), load_tensors(exported(MODEL, TRAINING).path(WEIGHTS))
    backend.step(window(), 0.5)
    after = backend.weights()
    backend.close()
    for name, values in expected.items():
        np.testing.assert_array_equal(before[name], values)
    assert (after["embedding.weight"] != before["embedding.weight"]).any()


def test_a_closed_handle_is_refused(backend: NativeBackend) -> None:
    for _ in range(2):
        backend.close()
    with pytest.raises(UsageError, match="NULL"):
        backend.reset()


KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PhonogradError)]


@pytest.mark.parametrize("status", c_abi.ERRORS)
def test_every_status_is_the_error_of_that_exit_code(library: NativeLibrary, status: int) -> None:
    with pytest.raises(PhonogradError, match=f"^fail-{status}: status {status} expected$") as found:
        NativeGraph(Path(f"fail-{status}"), library=library)
    assert found.value.exit_code == status
    assert found.type in KINDS


@pytest.mark.parametrize("status", [1, 99])
def test_another_status_is_a_bug(library: NativeLibrary, status: int) -> None:
    with pytest.raises(RuntimeError, match=f"native engine, status {status}: fail-{status}: status"):
        NativeGraph(Path(f"fail-{status}"), library=library)


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
    with pytest.raises(
        UnsupportedError,
        match="x86_64 Linux, aarch64 Linux, arm64 macOS, x86_64 macOS expected, found riscv64 Linux; run this",
    ):
        find_library()


@pytest.mark.parametrize(
    ("machine", "system", "builder"),
    [
        ("x86_64", "Linux", "build_host_library"),
        ("aarch64", "Linux", "build_arm64_library"),
        ("arm64", "Darwin", "build_macos_library"),
        ("x86_64", "Darwin", "build_macos_library"),
    ],
)
def test_a_checkout_builds_it_on_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, system: str, builder: str
) -> None:
    heard: list[object] = []

    def build(progress: object) -> native_build.BuildResult:
        heard.append(progress)
        return native_build.BuildResult(tmp_path / "lib", cached=False)

    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr(c_abi, "PACKAGED_LIBRARY", tmp_path / "none")
    monkeypatch.setattr(c_abi, builder, {machine: build} if system == "Darwin" else build)
    assert find_library(print) == tmp_path / "lib"  # type: ignore[arg-type]
    assert heard == [print]


def is_a_backend(engine: NativeBackend) -> Backend:
    return engine  # mypy holds it to the protocol
