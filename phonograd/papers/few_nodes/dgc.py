"""Deep Gradient Compression (Lin et al. 2018): one model, nodes send parts of gradients after every step (torch)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from phonograd.device_runtime.engine.backend import IGNORED, Window
from phonograd.device_runtime.formats.manifest import Manifest
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.text.windows import windows
from phonograd.export.torch_model import LanguageModel, RecurrentState
from phonograd.papers.few_nodes.plateau import Reached

# Of the share of gradients that is kept back, by epoch of the warm-up (section 3.3); later ones have the last.
WARM_UP = (0.75, 0.9375, 0.984375, 0.996, 0.999)
_MEMORY = ".memory"


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
    """A node of plain SGD, without momentum. clip_norm: of the sum over all `nodes`. unsent: v of the algorithm."""

    def __init__(self, nodes: int, clip_norm: float | None = None):
        self._clip = None if clip_norm is None else clip_norm / math.sqrt(nodes)  # local clipping, section 3.2
        self.unsent: dict[str, Array] = {}

    def compress(self, gradients: Mapping[str, Array], kept_back: float) -> dict[str, SparseGradient]:
        """What to send of a step's gradients, float32 by name: of each tensor the largest of what was never sent.

        Algorithm 1: v = v + g; the elements of v that are sent become zero in it.
        """
        scale = self._scale(gradients)
        sent = {}
        for name, gradient in gradients.items():
            flat = gradient.reshape(-1) * np.float32(scale)
            unsent = self.unsent.setdefault(name, np.zeros_like(flat))
            unsent += flat
            count = max(1, math.ceil(len(flat) * (1 - kept_back)))
            places = np.sort(np.argpartition(np.abs(unsent), len(flat) - count)[len(flat) - count :]).astype(np.int32)
            sent[name] = SparseGradient(places, unsent[places])
            unsent[places] = 0
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


@dataclass(frozen=True)
class Compressed:
    """Epochs of DGC on the nodes' streams, for `train_to_plateau`. work: a folder for models, beside each of which is
    what its nodes have not sent; threads: of torch.

    The loss, minibatch, BPTT and clip norm are the manifest's.
    """

    manifest: Manifest
    streams: Sequence[Ids]
    work: Path
    threads: int

    def __call__(self, base: Path, epochs: int, reached: Reached) -> tuple[Path, int, int]:
        """Train for some epochs; raises TrainingError, StorageError."""
        torch.set_num_threads(self.threads)
        model = LanguageModel(self.manifest.model)
        model.load(load_tensors(base))
        nodes = [DgcNode(len(self.streams), clip_norm=self.manifest.training.clip_norm) for _ in self.streams]
        if reached.passes:
            for name, values in load_tensors(base.with_suffix(_MEMORY)).items():
                place, _, key = name.partition(".")
                nodes[int(place)].unsent[key] = values
        uploads = nbytes = 0
        for _ in range(epochs):
            for sent in self._steps(model, nodes, sparsity(reached.passes)):
                apply(model.torch_weights(), sent, reached.learning_rate)
                uploads += len(sent)
                nbytes += sum(part.nbytes for message in sent for part in message.values())
        trained = self.work / f"{reached.passes + 1}.safetensors"
        save_tensors(trained, model.weights())
        memories = {f"{place}.{key}": values for place, node in enumerate(nodes) for key, values in node.unsent.items()}
        save_tensors(trained.with_suffix(_MEMORY), memories)
        return trained, uploads, nbytes

    def _steps(
        self, model: LanguageModel, nodes: Sequence[DgcNode], kept_back: float
    ) -> Iterator[list[dict[str, SparseGradient]]]:
        training = self.manifest.training
        states = [model.zero_state(training.minibatch) for _ in self.streams]
        layouts = [windows(stream, training.minibatch, training.bptt) for stream in self.streams]
        for step in zip(*layouts, strict=False):  # the longest streams' last window has nobody to go with
            sent = []
            for place, window in enumerate(step):
                states[place] = _gradients(model, window, states[place])
                gradients = {name: _gradient(parameter) for name, parameter in model.named_parameters()}
                sent.append(nodes[place].compress(gradients, kept_back))
            yield sent


def _gradients(model: LanguageModel, window: Window, state: RecurrentState) -> RecurrentState:
    """Leave the gradients of the window's loss, summed over time, the mean over the minibatch, in the parameters."""
    model.zero_grad()
    logits, after = model(torch.from_numpy(window.tokens), state)
    targets = torch.from_numpy(window.targets)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    loss = loss / window.targets.shape[1]
    loss.backward()
    return tuple(part.detach() for part in after)


def _gradient(parameter: torch.nn.Parameter) -> Array:
    assert parameter.grad is not None
    return parameter.grad.numpy()
