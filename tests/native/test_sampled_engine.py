"""The engine with an output sample: the same bits on any number of threads, fused as unfused, and what it refuses."""

import ctypes
import itertools
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from phonograd.device_runtime.base.errors import ArtifactsError, TrainingError, UsageError
from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, OutputSample, Precision, Window
from phonograd.device_runtime.engine.c_abi import load_library, options_of
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from tests.support.artifacts import exported

# Sizes that are no whole number of row blocks (24, 96), panels or vectors, with several of each: N = 35 tokens.
V, E, H, T, B = 300, 24, 40, 7, 5
STEPS, RATE = 6, 0.5
KERNELS = load_library().cpu_info()["kernels"]
TRAINING = TrainingConfig(minibatch=B, bptt=T, learning_rate=RATE, clip_norm=0.05)
DROPPING = TrainingConfig(minibatch=B, bptt=T, learning_rate=RATE, clip_norm=None, dropout=0.3)
LWF = TrainingConfig(minibatch=B, bptt=T, learning_rate=RATE, loss="lwf")
MODELS: Mapping[str, tuple[LanguageModelConfig, TrainingConfig]] = {
    "untied": (LanguageModelConfig("lstm", V, E, H, 2), TRAINING),
    "dropout": (LanguageModelConfig("lstm", V, E, H, 2), DROPPING),
    "no bias": (LanguageModelConfig("gru", V, E, H, 1, output_bias=False), TRAINING),
    "tied": (LanguageModelConfig("lstm", V, E, H, 1, tied=True), TRAINING),
    "lwf": (LanguageModelConfig("lstm", V, E, H, 1), LWF),
    "tied lwf": (LanguageModelConfig("gru", V, H, H, 1, tied=True), LWF),
}


def candidates() -> OutputSample:
    """Some words, the first and the last among them, and their shifts."""
    random = np.random.default_rng(2)
    ids = np.union1d(random.choice(V, 125, replace=False), [0, 1, V - 1])
    return OutputSample(ids, random.exponential(size=len(ids)).astype(np.float32))


def windows() -> list[Window]:
    random = np.random.default_rng(5)
    ids = candidates().candidates
    made = [Window(*(random.choice(ids, (T, B)) for _ in range(2))) for _ in range(STEPS)]
    made[2].tokens[:, 1] = made[2].tokens[0, 0]  # rows of the embedding that several tokens move
    made[-1].targets[3:, 2:] = IGNORED
    return made


def trained(
    name: str, threads: int = 2, kernels: str | None = None, fuse: bool = True, precision: Precision = "fp32"
) -> tuple[list[float], dict[str, Array]]:
    """Losses and weights of an epoch."""
    options = BackendOptions(threads=threads, seed=9, kernels=kernels, precision=precision, sample=candidates())
    backend = NativeBackend(exported(*MODELS[name], seed=3, spread=10), None, options, fuse)
    losses = [backend.step(window, RATE) for window in windows()]
    weights = backend.weights()
    backend.close()
    return losses, weights


def hold_equal(found: dict[str, Array], expected: dict[str, Array]) -> None:
    for tensor, values in expected.items():
        assert found[tensor].tobytes() == values.tobytes(), tensor


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_same_bits_on_any_number_of_threads(name: str) -> None:
    losses, weights = trained(name, 1)
    for threads in (2, 3, 5, 8):
        other_losses, other = trained(name, threads)
        assert other_losses == losses
        hold_equal(other, weights)


@pytest.mark.parametrize("name", MODELS)
def test_fused_over_packed_rows_agrees_with_the_graph_as_it_stands(name: str) -> None:
    losses, weights = trained(name)
    single_losses, single = trained(name, fuse=False)
    np.testing.assert_allclose(losses, single_losses, rtol=1e-5)
    for tensor, values in single.items():
        assert np.linalg.norm(weights[tensor] - values) <= 1e-5 * np.linalg.norm(values), tensor


@pytest.mark.parametrize("name", ["untied", "tied lwf"])
def test_kernel_sets_agree_but_for_rounding(name: str) -> None:
    before = NativeBackend(exported(*MODELS[name], seed=3, spread=10), None, BackendOptions()).weights()
    losses, weights = trained(name, kernels="portable")
    for kernels in KERNELS[:-1]:
        other_losses, other = trained(name, kernels=kernels)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
        for tensor, values in weights.items():
            moved = np.linalg.norm(values - before[tensor])
            assert np.linalg.norm(other[tensor] - values) <= 1e-3 * moved, (tensor, kernels)


def test_bf16_is_the_same_bits_on_any_number_of_threads_and_close() -> None:
    exact, _ = trained("untied")
    losses, weights = trained("untied", 1, precision="bf16-emulated")
    assert losses != exact
    np.testing.assert_allclose(losses, exact, rtol=1e-2)
    for threads in (2, 3):
        hold_equal(trained("untied", threads, precision="bf16-emulated")[1], weights)


@pytest.mark.parametrize("name", MODELS)
def test_all_words_without_shifts_are_the_full_softmax(name: str) -> None:
    sample = OutputSample(np.arange(V), np.zeros(V, np.float32))
    folder = exported(*MODELS[name], seed=3, spread=10)
    full, sampled = (NativeBackend(folder, None, BackendOptions(seed=9, sample=of)) for of in (None, sample))
    for window in windows():
        assert sampled.step(window, RATE) == pytest.approx(full.step(window, RATE), rel=1e-6)
    found = sampled.weights()
    for tensor, values in full.weights().items():
        assert np.linalg.norm(found[tensor] - values) <= 1e-6 * np.linalg.norm(values), tensor


def test_weights_and_scores_are_up_to_date_after_every_step() -> None:
    """They are copied out of the packed rows when they are asked for, the first time as at later ones."""
    folder = exported(*MODELS["untied"], seed=3, spread=10)
    asked, unasked = (NativeBackend(folder, None, BackendOptions(seed=9, sample=candidates())) for _ in range(2))
    tokens = np.arange(60).reshape(30, 2)
    scores = []
    for window in windows():
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
def test_samples_that_cannot_be_are_refused(sample: OutputSample, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NativeBackend(exported(*MODELS["untied"], seed=3, spread=10), None, BackendOptions(sample=sample))


@pytest.mark.parametrize("count", [-1, 2**31, 2**62])
def test_sizes_that_no_memory_holds_are_refused(count: int) -> None:
    library, handle = load_library(), ctypes.c_void_p()
    one = np.zeros(2, np.int64)
    folder = str(exported(*MODELS["untied"], seed=3, spread=10).folder).encode()
    options = options_of(BackendOptions())
    options.candidates = options.shifts = one.ctypes.data
    options.C = count
    with pytest.raises(UsageError, match=f"C: {count}; expected 1 to the vocabulary's size"):
        library.call("pg_engine_open", folder, None, options, ctypes.byref(handle))
    assert not handle


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", ["untied", "tied"])
@pytest.mark.parametrize("what", ["tokens", "targets"])
@pytest.mark.parametrize("wrong", [-2, V, 2**62, "outside"])
def test_words_outside_the_sample_change_nothing(name: str, what: str, wrong: int | str, fuse: bool) -> None:
    folder = exported(*MODELS[name], seed=3, spread=10)
    options = BackendOptions(sample=candidates())
    backend, untouched = (NativeBackend(folder, None, options, fuse) for _ in range(2))
    before = backend.weights()
    bad = windows()[0]
    word = int(np.setdiff1d(np.arange(V), candidates().candidates)[3]) if isinstance(wrong, str) else wrong
    getattr(bad, what)[1, 1] = word
    with pytest.raises(
        TrainingError, match=f"word {word} expected among its {len(candidates())} candidates, not found"
    ):
        backend.step(bad, RATE)
    hold_equal(backend.weights(), before)
    # The recurrent states did not move either: the next step is that of a fresh engine.
    assert backend.step(windows()[0], RATE) == untouched.step(windows()[0], RATE)


def read_by_another(model: Any) -> None:
    model.graph.node.append(helper.make_node("Neg", ["decoder.weight"], ["more"], name="another"))


def read_words(model: Any) -> None:
    constant = helper.make_tensor("seven", onnx.TensorProto.INT64, [], [7])
    model.graph.initializer.append(constant)
    model.graph.node.append(helper.make_node("Equal", ["tokens", "seven"], ["more"], name="another"))


def gather_what_is_made(model: Any) -> None:
    model.graph.node.append(helper.make_node("Gather", ["h0.next", "candidates"], ["more"], name="another"))


def gather_a_state(model: Any) -> None:
    model.graph.node.append(helper.make_node("Gather", ["h0", "candidates"], ["more"], name="another"))


def another_shape(model: Any) -> None:
    (weight,) = (value for value in model.graph.input if value.name == "decoder.weight")
    weight.type.tensor_type.shape.dim[0].dim_value = V + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (read_by_another, "node 'another' (Neg): reads 'decoder.weight' beside the gathering of its rows"),
        (read_words, "node 'another' (Equal): reads 'tokens'"),
        (gather_what_is_made, "node 'another' (Gather): gathers rows of 'h0.next'"),
        (gather_a_state, "(LSTMTraining): reads 'h0' beside the gathering of its rows"),
        (another_shape, "input 'decoder.weight' [301,40] is gathered by words"),
    ],
)
def test_graphs_that_would_train_other_rows_are_refused(
    tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    folder = Path(shutil.copytree(exported(*MODELS["untied"], seed=3, spread=10).folder, tmp_path / "artifacts"))
    model = onnx.load(folder / "training_model_sampled.onnx")
    change(model)
    onnx.save(model, folder / "training_model_sampled.onnx")
    resized(folder)
    with pytest.raises(ArtifactsError, match=re.escape(said)) as refused:
        NativeBackend(open_artifacts(folder, verify=False), None, BackendOptions(sample=candidates()))
    assert "training_model_sampled.onnx: " in str(refused.value)


def resized(folder: Path) -> None:
    """Give the manifest the size that the sampled graph has now; its hash is not read by the engine."""
    manifest = folder / "manifest.json"
    size = (folder / "training_model_sampled.onnx").stat().st_size
    text, count = re.subn(
        r'("training_model_sampled\.onnx":\s*\{\s*"bytes": )\d+', rf"\g<1>{size}", manifest.read_text()
    )
    assert count == 1
    manifest.write_text(text)
