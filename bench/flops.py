"""The floating-point operations of a training step; a multiply-add counts as two."""

from phonograd.device_runtime.formats.manifest import Manifest, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

PRODUCTS = 4  # matrix products in a turn of the ceiling: about the arithmetic of a full-size step


def step_flop(model: LanguageModelConfig, training: TrainingConfig, output_words: int | None = None) -> int:
    """FLOP of one step of T·B tokens; 31.5e9 for the paper's model. output_words: None is the vocabulary.

    Per token, every weight outside the embedding takes one multiply-add forward and two backward; LwF's teacher adds a
    forward pass.
    """
    weights = model.parameters - model.vocabulary * model.embedding * (not model.tied)
    if output_words is not None:
        row = (model.embedding if model.tied else model.hidden) + model.output_bias
        weights -= (model.vocabulary - output_words) * row
    passes = 4 if training.loss == "lwf" else 3
    return 2 * passes * training.minibatch * training.bptt * weights


def ceiling_shape(manifest: Manifest) -> tuple[int, int, int]:
    """The largest product [M, K] x [K, N] of a step, the output layer's: tokens, its input size, the vocabulary."""
    model, training = manifest.model, manifest.training
    width = model.embedding if model.tied else model.hidden
    return training.minibatch * training.bptt, width, model.vocabulary


def ceiling_flop(manifest: Manifest) -> int:
    """FLOP of one turn of the ceiling."""
    M, K, N = ceiling_shape(manifest)
    return 2 * M * K * N * PRODUCTS
