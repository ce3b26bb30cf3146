"""Models of awkward sizes, and epochs of them by the engine."""

from collections.abc import Mapping

import numpy as np

from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, OutputSample, Precision, Window
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array

# Sizes that are no whole number of row blocks (24, 96), panels or vectors, with several of each: N = 35 tokens.
V, E, H, T, B = 300, 24, 40, 7, 5
STEPS, LEARNING_RATE = 6, 0.5


def _training(**changes: object) -> TrainingConfig:
    return TrainingConfig(minibatch=B, bptt=T, learning_rate=LEARNING_RATE, **changes)  # type: ignore[arg-type]


CLIPPED, LWF, PLAIN = _training(clip_norm=0.05), _training(loss="lwf"), _training(clip_norm=None)
DROPPING = _training(clip_norm=None, dropout=0.3)
FULL: Mapping[str, tuple[LanguageModelConfig, TrainingConfig]] = {
    "lstm-clipped": (LanguageModelConfig("lstm", V, E, H, 2), CLIPPED),
    "lstm-dropout": (LanguageModelConfig("lstm", V, E, H, 2), DROPPING),
    "gru": (LanguageModelConfig("gru", V, E, H, 1), PLAIN),
    "lstm-tied-projected": (LanguageModelConfig("lstm", V, E, H, 1, tied=True), CLIPPED),
    "cifg-dropout": (LanguageModelConfig("cifg", V, E, H, 2), _training(clip_norm=0.05, dropout=0.3)),
    "cifg-tied": (LanguageModelConfig("cifg", V, E, H, 1, tied=True, output_bias=False), CLIPPED),
    "gru-tied-lwf": (LanguageModelConfig("gru", V, H, H, 1, tied=True), LWF),
}
KERNELS = load_library().cpu_info()["kernels"]


def candidates() -> OutputSample:
    """Some words, the first and the last among them, and their shifts."""
    random = np.random.default_rng(2)
    ids = np.union1d(random.choice(V, 125, replace=False), [0, 1, V - 1])
    return OutputSample(ids, random.exponential(size=len(ids)).astype(np.float32))


def windows(sampled: bool = False) -> list[Window]:
    random = np.random.default_rng(5)
    words = candidates().candidates if sampled else np.arange(V)
    made = [Window(*(random.choice(words, (T, B)) for _ in range(2))) for _ in range(STEPS)]
    made[2].tokens[:, 1] = made[2].tokens[0, 0]  # rows of the embedding that several tokens move
    made[-1].targets[3:, 2:] = IGNORED
    return made


def train(
    folders: dict[str, Artifacts],
    name: str,
    threads: int,
    kernels: str | None,
    precision: Precision = "fp32",
    fuse: bool = True,
) -> tuple[list[float], dict[str, Array]]:
    """Losses and weights of an epoch."""
    sampled = name.startswith("sampled")
    sample = candidates() if sampled else None
    options = BackendOptions(threads=threads, seed=9, kernels=kernels, precision=precision, sample=sample)
    backend = NativeBackend(folders[name], None, options, fuse)
    losses = [backend.step(window, LEARNING_RATE) for window in windows(sampled)]
    weights = backend.weights()
    backend.close()
    return losses, weights
