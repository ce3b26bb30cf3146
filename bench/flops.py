"""The floating-point operations of a training step; a multiply-add counts as two."""

from collections import Counter
from collections.abc import Collection, Mapping

from phonograd.device_runtime.formats.manifest import Manifest, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

PRODUCTS = 4  # matrix products in a turn of a ceiling: about the arithmetic of a full-size step
OUTPUT_LAYER, PRODUCT, UPDATE = "output layer", "products", "update"  # phases as the native engine names them


def step_flop(model: LanguageModelConfig, training: TrainingConfig, output_words: int | None = None) -> int:
    """FLOP of one step of T·B tokens; 31.5e9 for the paper's model. output_words: None is the vocabulary.

    Per token, every weight outside the embedding takes one multiply-add forward and two backward; LwF's teacher adds a
    forward pass.
    """
    passes = 4 if training.loss == "lwf" else 3
    weights = sum(_multiplied_weights(model, output_words).values())
    return 2 * passes * training.minibatch * training.bptt * weights


def phase_flop(
    model: LanguageModelConfig,
    training: TrainingConfig,
    output_words: int | None,
    phases: Collection[str],
    factored: Collection[str],
) -> dict[str, int]:
    """The same FLOP by the phase of the native engine that computes them: the sum is step_flop.

    phases: the names of the plan's phases; factored: the tensors whose gradients the plan leaves as two factors, which
    the update multiplies. Other gradients are computed where their layer is.
    """
    forward = 2 if training.loss == "lwf" else 1
    output = OUTPUT_LAYER if OUTPUT_LAYER in phases else PRODUCT
    total: Counter[str] = Counter()
    for tensor, weights in _multiplied_weights(model, output_words).items():
        if tensor.startswith(model.cell):
            ahead, back = "recurrent forward", "recurrent backward"
        else:
            ahead = back = PRODUCT if tensor.startswith("projection") else output
        total[ahead] += forward * weights
        total[back] += weights
        total[UPDATE if tensor in factored else back] += weights
    per_weight = 2 * training.minibatch * training.bptt
    return {phase: per_weight * weights for phase, weights in total.items()}


def _multiplied_weights(model: LanguageModelConfig, output_words: int | None) -> Mapping[str, int]:
    weights = {spec.name: spec.elements for spec in model.tensor_specs()}
    if not model.tied:
        del weights["embedding.weight"]
    if output_words is not None:
        for tensor in ("embedding.weight", "decoder.weight", "decoder.bias"):
            if tensor in weights:
                weights[tensor] = weights[tensor] // model.vocabulary * output_words
    return weights


def ceiling_shape(manifest: Manifest) -> tuple[int, int, int]:
    """The largest product [M, K] x [K, N] of a step, the output layer's: tokens, its input size, the vocabulary."""
    model, training = manifest.model, manifest.training
    width = model.embedding if model.tied else model.width
    return training.minibatch * training.bptt, width, model.vocabulary


def ceiling_flop(manifest: Manifest) -> int:
    """FLOP of one turn of a ceiling."""
    M, K, N = ceiling_shape(manifest)
    return 2 * M * K * N * PRODUCTS
