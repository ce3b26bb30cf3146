"""A model in int8. FORMAT.md, "Prediction weights"."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


def prediction_tensors(weights: dict[str, npt.NDArray[np.float32]]) -> dict[str, Array]:
    """The tensors of the file in its order, of the model's in theirs."""
    floats: dict[str, Array] = {}
    integers: dict[str, Array] = {}
    for name, tensor in weights.items():
        rows = tensor.reshape(-1, tensor.shape[-1])
        if len(rows) == 1:
            floats[name] = tensor
            continue
        scales = np.abs(rows).max(axis=1, keepdims=True) / np.float32(127)
        levels = np.divide(rows, scales, out=np.zeros_like(rows), where=scales > 0)
        floats[f"{name}.scales"] = scales[:, 0]
        integers[name] = np.rint(levels).clip(-127, 127).astype(np.int8).reshape(tensor.shape)
    return floats | integers
