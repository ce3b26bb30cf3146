"""Prediction weights: a model in int8, for a keyboard's predictor. FORMAT.md, "Prediction weights"."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile, check_finite, save_tensors

FORMAT = "phonograd-prediction"
VERSION = "1"
SCALES = ".scales"


def is_prediction_file(path: Path) -> bool:
    """Whether a tensor file says that it holds prediction weights. Raises WeightsError if it is no tensor file."""
    with TensorFile(path) as file:
        return file.metadata.get("format") == FORMAT


def write_prediction_weights(path: Path, weights: Mapping[str, Array], base_sha256: str) -> WrittenFile:
    """Write a model's prediction weights, atomically; `base_sha256` is the model's identity.

    weights: the model's tensors, float32, in the order of its file. The bytes equal those of `phonograd-phone
    quantize`. Raises WeightsError for weights that are not finite, StorageError.
    """
    floats: dict[str, Array] = {}  # first, so that they are aligned
    integers: dict[str, Array] = {}
    for name, tensor in weights.items():
        check_finite(str(path), name, tensor)
        rows = tensor.reshape(-1, tensor.shape[-1])
        if len(rows) == 1:
            floats[name] = tensor
            continue
        scales = np.abs(rows).max(axis=1) / np.float32(127)
        floats[name + SCALES] = scales
        integers[name] = _levels(rows, scales).reshape(tensor.shape)
    return save_tensors(path, floats | integers, {"base_sha256": base_sha256, "format": FORMAT, "version": VERSION})


def _levels(rows: Array, scales: Array) -> Array:
    """The rows as int8. A subnormal scale may give more than 127."""
    divisors = np.where(scales > 0, scales, np.float32(1))[:, np.newaxis]
    levels = np.where(scales[:, np.newaxis] > 0, rows, 0)
    np.divide(levels, divisors, out=levels)
    return np.rint(levels).clip(-127, 127).astype(np.int8)
