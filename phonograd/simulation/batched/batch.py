"""The training of some phones at once, from the same base model, each on its own windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phonograd.device_runtime.base.random_words import SplitMix64, random_words
from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import Manifest
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B
from phonograd.device_runtime.formats.tensor_file import Array, Floats, TensorFile
from phonograd.device_runtime.text.vocabulary import EOS, Ids
from phonograd.device_runtime.training.report import training_windows
from phonograd.simulation.batched.model import BIAS, DECODER, EMBEDDING, State, logits_of, losses_of
from phonograd.simulation.phone import PreparedPhone

# What fills up phones' rows to the batch's number: a word of every vocabulary, and a shift that leaves no probability.
FILLING_WORD, FILLING_SHIFT = 0, -1e30


@dataclass(frozen=True)
class Base:
    """A base model: its arrays, the same as tensors on the device, and the names that are frozen."""

    sha256: str
    arrays: dict[str, Array]
    tensors: dict[str, Tensor]
    frozen: frozenset[str]

    @classmethod
    def load(cls, path: Path, sha256: str, device: torch.device) -> "Base":
        """Read a model's file. Raises WeightsError."""
        with TensorFile(path) as file:
            arrays = {name: file.read(name) for name in file.specs}
            tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
            return cls(sha256, arrays, tensors, frozen_in(file))


class Batch:
    """P phones. Those with most steps come first: a phone that has ended is at the end, where steps leave it out.

    A phone holds only the rows that training can move: of an untied embedding those of the words that it reads, and
    with an output sample those of its candidates. Tokens and targets are places among these rows.

    dropout_nodes: see dropout_nodes(). Raises TextError for a text that does not fill a window.
    """

    def __init__(
        self,
        manifest: Manifest,
        base: Base,
        phones: Sequence[PreparedPhone],
        epochs: int,
        learning_rate: float,
        dropout_nodes: Sequence[int],
    ):
        self._model, self._training = manifest.model, manifest.training
        self._base, self._rate, self._dropout_nodes = base, learning_rate, dropout_nodes
        self._device = next(iter(base.tensors.values())).device
        passes = [training_windows(phone.text.stream, manifest.training) for phone in phones]
        self._order = sorted(range(len(phones)), key=lambda place: -len(passes[place]))
        self._phones, passes = [phones[place] for place in self._order], [passes[place] for place in self._order]
        self._windows = [len(windows) for windows in passes]  # of one pass
        self._steps = [epochs * windows for windows in self._windows]
        samples = [phone.sample for phone in self._phones if phone.sample is not None]
        scored = [sample.candidates for sample in samples]  # none: all words
        read = scored if self._model.tied else [np.unique(np.append(phone.text.stream, EOS)) for phone in self._phones]
        rows = {EMBEDDING: read, DECODER: scored, BIAS: scored}
        rows |= {name + ADAPTER_B: ids for name, ids in rows.items()}
        self._rows = {name: ids for name, ids in rows.items() if ids}
        self._shifts = self._padded([sample.shifts for sample in samples], FILLING_SHIFT) if samples else None
        self._first = {name: self._of_phones(name) for name in base.tensors}
        self._weights = {
            name: part if name in base.frozen else part.clone(memory_format=torch.contiguous_format)
            for name, part in self._first.items()
        }
        self._tokens = self._laid_out(EMBEDDING, [[window.tokens for window in windows] for windows in passes])
        self._targets = self._laid_out(DECODER, [[window.targets for window in windows] for windows in passes])

    def run(self) -> list[list[float]]:
        """Train. Returns each phone's losses in nats a token, before each step's update, in the order given."""
        shape = (len(self._phones), self._training.minibatch, self._model.hidden)
        zero = tuple(torch.zeros(shape, device=self._device) for _ in self._model.states)
        states = teachers = [zero] * self._model.layers
        losses = []
        for step in range(max(self._steps)):
            active = sum(steps > step for steps in self._steps)
            going_on = [step % windows != 0 for windows in self._windows[:active]]
            states, teachers = self._continued(states, going_on), self._continued(teachers, going_on)
            scores = None
            if self._training.loss == "lwf":
                scores, teachers = self._logits(self._first, step, teachers)
            with torch.enable_grad():
                weights = {
                    name: part[:active].detach().requires_grad_(name not in self._base.frozen)
                    for name, part in self._weights.items()
                }
                logits, states = self._logits(weights, step, states, self._masks(step, active))
                summed = losses_of(logits, self._targets[step, :active], self._training, scores)
            losses.append(self._update(step, weights, summed))
        rows = [one.tolist() for one in losses]
        by_phone = [[rows[step][place] for step in range(steps)] for place, steps in enumerate(self._steps)]
        return [by_phone[self._order.index(place)] for place in range(len(self._order))]

    def trained(self, place: int) -> dict[str, Array]:
        """The canonical weights of a phone, by its place in the order given."""
        at, weights = self._order.index(place), {}
        for name, array in self._base.arrays.items():
            if name in self._base.frozen:
                weights[name] = array
                continue
            values = self._weights[name][at].cpu().numpy()
            if name in self._rows:
                ids = self._rows[name][at]
                weights[name] = array.copy()
                weights[name][ids] = values[: len(ids)]
            else:
                weights[name] = values.reshape(array.shape)
        return weights

    def _of_phones(self, name: str) -> Tensor:
        """The base's tensor as the first one of each phone, [P, ...]."""
        tensor = self._base.tensors[name]
        if name in self._rows:
            return tensor[self._padded(self._rows[name], FILLING_WORD)]
        recurrent = name.startswith(f"{self._model.cell}.") and not name.endswith((ADAPTER_A, ADAPTER_B))
        whole = tensor if recurrent else tensor[None]  # ONNX's axis of directions, 1
        return whole.expand(len(self._phones), *whole.shape[1:])

    def _padded(self, rows: Sequence[Array], fill: float) -> Tensor:
        """Rows of different lengths as one tensor [P, most]."""
        padded = np.full((len(rows), max(map(len, rows))), fill, rows[0].dtype)
        for row, values in zip(padded, rows, strict=True):
            row[: len(values)] = values
        return torch.from_numpy(padded).to(self._device)

    def _laid_out(self, name: str, passes: Sequence[Sequence[Ids]]) -> Tensor:
        """The words of all windows as places among a tensor's rows, [steps, P, N]; past a phone's end they are 0."""
        laid_out = np.zeros((max(self._steps), len(passes), passes[0][0].size), np.int64)
        for phone, windows in enumerate(passes):
            ids = np.stack(windows).reshape(len(windows), -1)
            if name in self._rows:
                ids = np.where(ids == IGNORED, IGNORED, np.searchsorted(self._rows[name][phone], ids))
            laid_out[: self._steps[phone], phone] = np.tile(ids, (self._steps[phone] // len(windows), 1))
        return torch.from_numpy(laid_out).to(self._device)

    def _logits(
        self, weights: dict[str, Tensor], step: int, states: Sequence[State], masks: Sequence[Tensor] = ()
    ) -> tuple[Tensor, list[State]]:
        active = len(states[0][0])
        shifts = None if self._shifts is None else self._shifts[:active]
        weights = {name: part[:active] for name, part in weights.items()}
        return logits_of(self._model, weights, self._tokens[step, :active], states, masks, shifts)

    def _update(self, step: int, weights: dict[str, Tensor], summed: Tensor) -> Tensor:
        """Take the clipped gradients of the losses [A] off the weights. Returns the losses in nats a token."""
        training, active = self._training, len(summed)
        predictions = (self._targets[step, :active] != IGNORED).sum(1)
        averaged = training.loss_reduction == "mean"
        divisors = predictions if averaged else torch.full_like(predictions, training.minibatch)
        trained = {name: part for name, part in weights.items() if name not in self._base.frozen}
        gradients = torch.autograd.grad(summed, list(trained.values()), grad_outputs=1 / divisors)
        squares = [part.square().flatten(1).sum(1, dtype=torch.float64) for part in gradients]
        norms = torch.stack(squares).sum(0).sqrt()
        scales = torch.ones_like(norms) if training.clip_norm is None else (training.clip_norm / norms).clamp(max=1)
        rates = (self._rate * scales).float()
        for part, gradient in zip(trained.values(), gradients, strict=True):
            part.detach().addcmul_(gradient, -rates.view(-1, *[1] * (gradient.ndim - 1)))
        return summed.detach().double() / predictions

    def _continued(self, states: Sequence[State], going_on: Sequence[bool]) -> list[State]:
        """The states of the phones that have not ended, zero where a text starts."""
        kept = torch.tensor(going_on, device=self._device)[:, None, None]
        return [tuple(part[: len(kept)].detach() * kept for part in state) for state in states]

    def _masks(self, step: int, active: int) -> list[Tensor]:
        """Dropout's of a step, [A, N, width] each."""
        N = self._training.bptt * self._training.minibatch
        masks = []
        for place, node in enumerate(self._dropout_nodes):
            width = self._model.embedding if place == 0 else self._model.width
            drawn = [
                dropout_mask(phone.seed, step, node, self._training.dropout, N * width)
                for phone in self._phones[:active]
            ]
            masks.append(torch.from_numpy(np.stack(drawn).reshape(active, N, width)).to(self._device))
        return masks


# The native engine's dropout masks are a function of seed, step, node and place (native/src/operators/dropout.cpp).
_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def dropout_nodes(graph: Path) -> list[int]:
    """The places of the Dropout nodes among the nodes of a training graph, in order."""
    import onnx  # takes a while, and few models have dropout

    return [at for at, node in enumerate(onnx.load(graph).graph.node) if node.op_type == "Dropout"]


def dropout_mask(seed: int, step: int, node: int, probability: float, count: int) -> Floats:
    """What each of `count` elements is multiplied by, 0 or 1 / (1 - probability), float32. step: from 0."""
    ratio = np.float32(probability)
    of_step = _mixed(step + (node << 40) + 1)
    key = _mixed(seed + _STEP * of_step)
    kept = random_words((key - _STEP) & _MASK, 0, count) >> np.uint64(32) >= np.uint64(int(float(ratio) * 2.0**32))
    return np.where(kept, np.float32(1) / (np.float32(1) - ratio), np.float32(0))


def _mixed(state: int) -> int:
    """The output of SplitMix64's state."""
    return SplitMix64(state - _STEP).next()
