"""pg_engine_write_update: an engine's update has the bytes that Python writes of the same weights."""

import contextlib
import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import StorageError, TrainingError, UpdateError, UsageError, WeightsError
from phonograd.device_runtime.engine import load_backend
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import UpdateOptions, Written, load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile
from phonograd.device_runtime.text.output_sample import OutputSample
from phonograd.device_runtime.text.windows import Window
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.trained_update import write_trained_update
from phonograd.device_runtime.update.update_file import MAX_COUNT, UpdateInfo, write_update
from tests.support.artifacts import exported

V, T, B = 200, 5, 4
MODEL = LanguageModelConfig("lstm", vocabulary=V, embedding=24, hidden=24, layers=1)
TRAINING = TrainingConfig(minibatch=B, bptt=T, clip_norm=None)
SAMPLE = OutputSample(np.arange(0, V, 5), np.ones(V // 5, np.float32))
HOWS = {
    "full": BackendOptions(1),
    "sampled": BackendOptions(1, sample=SAMPLE),
    "one step": BackendOptions(1, full_batch=True),
}


def info(codec: str, **changes: int) -> UpdateInfo:
    with TensorFile(exported(MODEL, TRAINING).path(WEIGHTS)) as base:
        return UpdateInfo(
            **{"base_sha256": base.sha256(), "round": 7, "tokens": 40, "codec": codec, "seed": 9} | changes
        )


@contextlib.contextmanager
def trained(
    options: BackendOptions, backend: str = "native", rate: float = 0.5, of: Artifacts | None = None
) -> Iterator[tuple[NativeBackend, TensorFile]]:
    """An engine after three windows, and the weights that it started from."""
    artifacts = of or exported(MODEL, TRAINING)
    random = np.random.default_rng(1)
    with (
        contextlib.closing(load_backend(backend, artifacts, None, options)) as engine,
        TensorFile(artifacts.path(WEIGHTS)) as base,
    ):
        for _ in range(3):
            engine.step(Window(*(random.choice(SAMPLE.candidates, (T, B)) for _ in range(2))), rate)
        if options.full_batch:
            engine.finish_full_batch(rate)
        yield engine, base  # type: ignore[misc]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_are_pythons(tmp_path: Path, codec: str, how: str) -> None:
    said = info(codec, steps=1) if how == "one step" else info(codec)
    with trained(HOWS[how]) as (engine, base):
        ours = write_trained_update(tmp_path / "native", base, engine, said)
        expected = write_update(tmp_path / "python", base, engine.weights(), said)
    assert (tmp_path / "native").read_bytes() == (tmp_path / "python").read_bytes()
    assert ours == expected


def test_training_may_go_on_after_an_update(tmp_path: Path) -> None:
    window = Window(*(np.full((T, B), SAMPLE.candidates[3]) for _ in range(2)))
    with trained(HOWS["sampled"]) as (engine, base), trained(HOWS["sampled"]) as (other, _):
        write_trained_update(tmp_path / "first", base, engine, info("rows-f32"))
        for one in (engine, other):
            one.step(window, 0.5)
        paths = tmp_path / "second", tmp_path / "expected"
        for path, one in zip(paths, (engine, other), strict=True):
            write_trained_update(path, base, one, info("rows-f32"))
    assert paths[0].read_bytes() == paths[1].read_bytes() != (tmp_path / "first").read_bytes()


def test_another_backends_update_is_written_by_python(tmp_path: Path) -> None:
    with trained(BackendOptions(1), "ort") as (engine, base):
        written = write_trained_update(tmp_path / "ort", base, engine, info("full-f32"))
        assert written == write_update(tmp_path / "expected", base, engine.weights(), info("full-f32"))


def test_weights_that_are_not_finite_are_training_that_failed(tmp_path: Path) -> None:
    with trained(BackendOptions(1)) as (engine, base):
        engine.step(Window(*(np.zeros((T, B), np.int64) for _ in range(2))), 3e38)
        engine.step(Window(*(np.zeros((T, B), np.int64) for _ in range(2))), 3e38)
        with pytest.raises(TrainingError, match=r"trained weights: tensor .* lower the learning rate"):
            write_trained_update(tmp_path / "update", base, engine, info("rows-f32"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "update"
    with trained(BackendOptions(1)) as (engine, base):
        with pytest.raises(UpdateError, match=f"tokens {MAX_COUNT + 1}: expected a whole number"):
            write_trained_update(path, base, engine, info("rows-f32", tokens=MAX_COUNT + 1))
        with pytest.raises(UpdateError, match="round -1: expected a whole number"):
            write_trained_update(path, base, engine, info("rows-f32", round=-1))
        with pytest.raises(UpdateError, match="codec 'best' is unknown"):
            write_trained_update(path, base, engine, info("best"))
        with pytest.raises(StorageError, match="no folder /proc/none, and it can't be made"):
            write_trained_update(Path("/proc/none/update"), base, engine, info("rows-f32"))
        weights = base.path.read_bytes()
        with pytest.raises(UsageError, match=f"would replace .*/{WEIGHTS}, an input"):
            write_trained_update(base.path, base, engine, info("rows-f32"))
        assert base.path.read_bytes() == weights
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_was_changed_is_refused(tmp_path: Path) -> None:
    shutil.copytree(exported(MODEL, TRAINING).folder, tmp_path / "own")
    own = open_artifacts(tmp_path / "own")
    with trained(BackendOptions(1), of=own) as (engine, base):
        with own.path(WEIGHTS).open("r+b") as file:
            file.seek(-4, 2)
            file.write(b"abcd")
        with pytest.raises(WeightsError, match="changed"):
            write_trained_update(tmp_path / "update", base, engine, info("rows-f32"))
    assert not (tmp_path / "update").exists()


def call(engine: NativeBackend, path: Path, base_sha256: bytes | None, codec: bytes | None, steps: int) -> WrittenFile:
    options = UpdateOptions(ctypes.sizeof(UpdateOptions), base_sha256, codec, 7, 40, 9, steps)
    written = Written(ctypes.sizeof(Written))
    load_library().call(
        "pg_engine_write_update", engine.handle, ctypes.byref(options), bytes(path), ctypes.byref(written)
    )
    return WrittenFile(written.nbytes, written.sha256.decode())


def test_options_of_the_c_abi(tmp_path: Path) -> None:
    sha256 = info("rows-f32").base_sha256.encode()
    with trained(BackendOptions(1)) as (engine, base):
        expected = write_update(tmp_path / "expected", base, engine.weights(), info("rows-f32"))
        assert call(engine, tmp_path / "default", sha256, None, 0) == expected
        for wrong, said in ((None, "NULL"), (b"ab", "64 .* expected, found 'ab'"), (sha256.upper(), "64 .* expected")):
            with pytest.raises(UsageError, match=f"base_sha256: {said}"):
                call(engine, tmp_path / "update", wrong, None, 0)
        with pytest.raises(UsageError, match="steps: 2; expected 0 or 1"):
            call(engine, tmp_path / "update", sha256, None, 2)
    assert not (tmp_path / "update").exists()
