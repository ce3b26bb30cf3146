"""Deep Gradient Compression (Lin et al. 2018): what a node sends after each step, and what it remembers of the rest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array

# Of the share of gradients that is kept back, by epoch of the warm-up (section 3.3); later ones have the last.
WARM_UP = (0.75, 0.9375, 0.984375, 0.996, 0.999)


@dataclass(frozen=True)
class SparseGradient:
    """Elements of one tensor that are sent. places: [k] int32 in the flattened tensor, rising; values: [k] float32."""

    places: Array
    values: Array

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: four for each place and four for each value."""
        return int(self.places.nbytes + self.values.nbytes)


def sparsity(epoch: int) -> float:
    """The share of gradients that is not sent in an epoch, counted from 0."""
    return WARM_UP[min(epoch, len(WARM_UP) - 1)]


class DgcNode:
    """A node's memory. momentum: m of momentum correction (0: plain SGD); clip_norm: of the sum over all `nodes`."""

    def __init__(self, nodes: int, momentum: float = 0.0, clip_norm: float | None = None):
        self._momentum = momentum
        self._clip = None if clip_norm is None else clip_norm / math.sqrt(nodes)  # local clipping, section 3.2
        self._velocity: dict[str, Array] = {}
        self._unsent: dict[str, Array] = {}

    def compress(self, gradients: Mapping[str, Array], kept_back: float) -> dict[str, SparseGradient]:
        """What to send of a step's gradients, float32 by name: of each tensor the largest of what was never sent.

        Algorithm 4: u = m·u + g, v = v + u; the elements of v that are sent become zero in v and in u (masking).
        """
        scale = self._scale(gradients)
        sent = {}
        for name, gradient in gradients.items():
            flat = gradient.reshape(-1) * np.float32(scale)
            velocity = self._velocity.setdefault(name, np.zeros_like(flat))
            unsent = self._unsent.setdefault(name, np.zeros_like(flat))
            velocity *= np.float32(self._momentum)
            velocity += flat
            unsent += velocity
            count = max(1, math.ceil(len(flat) * (1 - kept_back)))
            places = np.sort(np.argpartition(np.abs(unsent), len(flat) - count)[len(flat) - count :]).astype(np.int32)
            sent[name] = SparseGradient(places, unsent[places])
            unsent[places] = 0
            velocity[places] = 0
        return sent

    def _scale(self, gradients: Mapping[str, Array]) -> float:
        if self._clip is None:
            return 1.0
        norm = math.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients.values()))
        return min(1.0, self._clip / norm) if norm > 0 else 1.0


def apply(weights: dict[str, Array], sent: list[dict[str, SparseGradient]], learning_rate: float) -> None:
    """Subtract the learning rate times the mean of all nodes' gradients from the weights, in place."""
    rate = np.float32(learning_rate / len(sent))
    for gradients in sent:
        for name, gradient in gradients.items():
            weights[name].reshape(-1)[gradient.places] -= rate * gradient.values
