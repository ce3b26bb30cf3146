"""Writes tests/golden/*.safetensors: run `python -m tests.golden.make_golden` after a change of the cases.

Each file holds a case's first weights (`first.NAME`), its windows, the loss of every step, and the last weights
(`last.NAME`), all by PyTorch. Engines are held to these files, so that no two of them can drift together.
"""

from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, save_tensors
from phonograd.export.torch_layout import seeded_weights
from tests.golden.cases import CASES, LEARNING_RATE, STEPS, Case
from tests.golden.torch_reference import TorchTrainer, windows_of

FOLDER = Path(__file__).parent
# Seeded weights are small; ten times as large, the gates leave their linear part.
SPREAD = np.float32(10)


def golden(case: Case) -> dict[str, Array]:
    """All arrays of one golden file."""
    first = {name: array * SPREAD for name, array in seeded_weights(case.model, seed=1).items()}
    trainer = TorchTrainer(case, first)
    windows = windows_of(case, STEPS)
    losses = [trainer.step(window, LEARNING_RATE) for window in windows]
    return {
        **{f"first.{name}": array for name, array in first.items()},
        "tokens": np.stack([window.tokens for window in windows]),
        "targets": np.stack([window.targets for window in windows]),
        "losses": np.array(losses),
        **{f"last.{name}": array for name, array in trainer.model.weights().items()},
    }


if __name__ == "__main__":
    for name, case in CASES.items():
        save_tensors(FOLDER / f"{name}.safetensors", golden(case))
