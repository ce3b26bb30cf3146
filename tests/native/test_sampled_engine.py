"""The engine with an output sample: what it trains and refuses; tests/native/test_threads.py holds its bits."""

import ctypes
import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from phonograd.device_runtime.base.errors import ArtifactsError, TrainingError, UsageError
from phonograd.device_runtime.engine.backend import BackendOptions, OutputSample
from phonograd.device_runtime.engine.c_abi import load_library, options_of
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array
from tests.native.epochs import FULL, LEARNING_RATE, V, candidates, train, windows
from tests.support.artifacts import exported

RATE = LEARNING_RATE


def hold_equal(found: dict[str, Array], expected: dict[str, Array]) -> None:
    for tensor, values in expected.items():
        assert found[tensor].tobytes() == values.tobytes(), tensor


@pytest.fixture(scope="module")
def artifacts() -> Artifacts:
    return exported(*FULL["lstm-clipped"], seed=3, spread=10)


def test_bf16_is_close() -> None:
    folders = {"sampled": exported(*FULL["lstm-clipped"], seed=3, spread=10)}
    exact, _ = train(folders, "sampled", 1, None)
    rounded, _ = train(folders, "sampled", 1, None, "bf16-emulated")
    assert rounded != exact
    np.testing.assert_allclose(rounded, exact, rtol=1e-2)


@pytest.mark.parametrize("name", FULL)
def test_all_words_without_shifts_are_the_full_softmax(name: str) -> None:
    sample = OutputSample(np.arange(V), np.zeros(V, np.float32))
    folder = exported(*FULL[name], seed=3, spread=10)
    full, sampled = (NativeBackend(folder, None, BackendOptions(seed=9, sample=of)) for of in (None, sample))
    for window in windows(sampled=True):
        assert sampled.step(window, RATE) == pytest.approx(full.step(window, RATE), rel=1e-6)
    found = sampled.weights()
    for tensor, values in full.weights().items():
        assert np.linalg.norm(found[tensor] - values) <= 1e-6 * np.linalg.norm(values), tensor


def test_weights_and_scores_are_up_to_date_after_every_step(artifacts: Artifacts) -> None:
    """Reading copies them out of the packed rows, the first time and later."""
    asked, unasked = (NativeBackend(artifacts, None, BackendOptions(seed=9, sample=candidates())) for _ in range(2))
    tokens = np.arange(60).reshape(30, 2)
    scores = []
    for window in windows(sampled=True):
        asked.step(window, RATE)
        unasked.step(window, RATE)
        asked.weights()
        scores.append(asked.logits(tokens))
        asked.reset()
        unasked.reset()
    hold_equal(asked.weights(), unasked.weights())
    np.testing.assert_array_equal(scores[-1], unasked.logits(tokens))
    assert all((before != after).any() for before, after in itertools.pairwise(scores))


def sample_of(ids: list[int], shifts: list[float] | None = None) -> OutputSample:
    return OutputSample(np.array(ids, np.int64), np.array(shifts or [0.0] * len(ids), np.float32))


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (sample_of([0, 1, V]), rf"candidate {V} at place 2: expected ids that rise, from 0 to {V - 1}"),
        (sample_of([-1, 1]), r"candidate -1 at place 0: expected ids that rise"),
        (sample_of([0, 2**62]), r"candidate 4611686018427387904 at place 1"),
        (sample_of([0, 5, 3]), r"candidate 3 at place 2: expected ids that rise"),
        (sample_of([0, 5, 5]), r"candidate 5 at place 2: expected ids that rise"),
        (sample_of([0, 1], [0.0, np.nan]), r"shift -?nan at place 1: expected a finite number of at least 0"),
        (sample_of([0, 1], [0.0, np.inf]), r"shift inf at place 1"),
        (sample_of([0, 1], [-0.25, 0.0]), r"shift -0.25\d* at place 0"),
    ],
)
def test_samples_that_cannot_be_are_refused(artifacts: Artifacts, sample: OutputSample, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NativeBackend(artifacts, None, BackendOptions(sample=sample))


@pytest.mark.parametrize("count", [-1, 2**31, 2**62])
def test_sizes_that_no_memory_holds_are_refused(artifacts: Artifacts, count: int) -> None:
    library, handle = load_library(), ctypes.c_void_p()
    one = np.zeros(2, np.int64)
    options = options_of(BackendOptions())
    options.candidates = options.shifts = one.ctypes.data
    options.C = count
    with pytest.raises(UsageError, match=f"C: {count}; expected 1 to the vocabulary's size"):
        library.call("pg_engine_open", str(artifacts.folder).encode(), None, options, ctypes.byref(handle))
    assert not handle


@pytest.mark.parametrize(
    ("name", "what", "wrong", "fuse"),
    [
        ("lstm-clipped", "tokens", -2, True),
        ("lstm-clipped", "targets", V, False),
        ("lstm-tied-projected", "tokens", 2**62, False),
        ("lstm-tied-projected", "tokens", "outside", True),
        ("lstm-tied-projected", "targets", -2, False),
        ("lstm-clipped", "targets", "outside", True),
    ],
)
def test_words_outside_the_sample_change_nothing(name: str, what: str, wrong: int | str, fuse: bool) -> None:
    folder = exported(*FULL[name], seed=3, spread=10)
    options = BackendOptions(sample=candidates())
    backend, untouched = (NativeBackend(folder, None, options, fuse) for _ in range(2))
    before = backend.weights()
    bad = windows(sampled=True)[0]
    word = int(np.setdiff1d(np.arange(V), candidates().candidates)[3]) if isinstance(wrong, str) else wrong
    getattr(bad, what)[1, 1] = word
    with pytest.raises(
        TrainingError, match=f"word {word} expected among its {len(candidates())} candidates, not found"
    ):
        backend.step(bad, RATE)
    hold_equal(backend.weights(), before)
    # The recurrent states did not move either: the next step is that of a fresh engine.
    assert backend.step(windows(sampled=True)[0], RATE) == untouched.step(windows(sampled=True)[0], RATE)


def another_node(operator: str, *inputs: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        model.graph.initializer.append(helper.make_tensor("seven", onnx.TensorProto.INT64, [], [7]))
        model.graph.node.append(helper.make_node(operator, inputs, ["more"], name="another"))

    return change


def another_shape(model: Any) -> None:
    (weight,) = (value for value in model.graph.input if value.name == "decoder.weight")
    weight.type.tensor_type.shape.dim[0].dim_value = V + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            another_node("Neg", "decoder.weight"),
            "node 'another' (Neg): reads 'decoder.weight' beside the gathering of its rows",
        ),
        (another_node("Equal", "tokens", "seven"), "node 'another' (Equal): reads 'tokens'"),
        (another_node("Gather", "h0.next", "candidates"), "node 'another' (Gather): gathers rows of 'h0.next'"),
        (another_node("Gather", "h0", "candidates"), "(LSTMTraining): reads 'h0' beside the gathering of its rows"),
        (another_shape, "input 'decoder.weight' [301,40] is gathered by words"),
    ],
)
def test_graphs_that_would_train_other_rows_are_refused(
    tmp_path: Path, artifacts: Artifacts, change: Callable[[Any], None], said: str
) -> None:
    folder = Path(shutil.copytree(artifacts.folder, tmp_path / "artifacts"))
    model = onnx.load(folder / "training_model_sampled.onnx")
    change(model)
    onnx.save(model, folder / "training_model_sampled.onnx")
    correct_size(folder)
    with pytest.raises(ArtifactsError, match=re.escape(said)) as refused:
        NativeBackend(open_artifacts(folder, verify=False), None, BackendOptions(sample=candidates()))
    assert "training_model_sampled.onnx: " in str(refused.value)


def correct_size(folder: Path) -> None:
    """Give the manifest the size that the sampled graph has now; its hash is not read by the engine."""
    manifest = folder / "manifest.json"
    size = (folder / "training_model_sampled.onnx").stat().st_size
    text, count = re.subn(
        r'("training_model_sampled\.onnx":\s*\{\s*"bytes": )\d+', rf"\g<1>{size}", manifest.read_text()
    )
    assert count == 1
    manifest.write_text(text)
