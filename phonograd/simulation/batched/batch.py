"""The training of some phones at once, from the same base model, each on its own windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import Manifest
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.text.vocabulary import EOS, Ids
from phonograd.device_runtime.training.report import training_windows
from phonograd.simulation.batched.dropout import dropout_mask
from phonograd.simulation.batched.model import NEVER, BatchedModel, Words, losses_and_deltas
from phonograd.simulation.batched.recurrent import State
from phonograd.simulation.phone import PreparedPhone

FIRST = 0  # a word of every vocabulary, for rows that only fill up


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
        self._manifest, self._base, self._rate, self._dropout_nodes = manifest, base, learning_rate, dropout_nodes
        self._device = next(iter(base.tensors.values())).device
        layouts = [training_windows(phone.text.stream, manifest.training) for phone in phones]
        self._order = sorted(range(len(phones)), key=lambda place: -len(layouts[place]))
        self._phones = [phones[place] for place in self._order]
        ordered = [layouts[place] for place in self._order]
        self._windows = [len(layout) for layout in ordered]  # of one pass
        self._steps = [epochs * windows for windows in self._windows]
        self._read = [self._words_read(phone) for phone in self._phones]
        sampled = self._phones[0].sample is not None
        self._scored = [phone.sample.candidates for phone in self._phones if phone.sample is not None]
        words = Words(
            None if manifest.model.tied else self._padded(self._read, FIRST),
            self._padded(self._scored, FIRST) if sampled else None,
            self._padded([phone.sample.shifts for phone in self._phones if phone.sample is not None], NEVER)
            if sampled
            else None,
        )
        self._model = BatchedModel(manifest.model, base.tensors, words, len(phones))
        self._teacher = (
            BatchedModel(manifest.model, base.tensors, words, len(phones), trained=False)
            if manifest.training.loss == "lwf"
            else None
        )
        places = range(len(phones))
        self._tokens = self._laid_out(
            [[self._place_read(p, window.tokens) for window in ordered[p]] for p in places], epochs
        )
        self._targets = self._laid_out(
            [[self._place_scored(p, window.targets) for window in ordered[p]] for p in places], epochs
        )

    def run(self) -> list[list[float]]:
        """Train. Returns each phone's losses in nats a token, before each step's update, in the order given."""
        training = self._manifest.training
        states = self._model.zero_state(training.minibatch)
        teacher_states = self._model.zero_state(training.minibatch)
        losses: list[Tensor] = []
        for step in range(max(self._steps)):
            active = sum(steps > step for steps in self._steps)
            at_start = [place for place in range(active) if step % self._windows[place] == 0]
            states, teacher_states = (_continued(one, active, at_start) for one in (states, teacher_states))
            tokens, targets = self._tokens[step, :active], self._targets[step, :active]
            forward = self._model.forward(tokens, states, self._masks(step, active))
            states = forward.states
            scores = None
            if self._teacher is not None:
                teacher = self._teacher.forward(tokens, teacher_states)
                teacher_states, scores = teacher.states, teacher.logits
            nats, deltas = losses_and_deltas(forward.logits, targets, training, scores)
            gradients = {
                name: gradient for name, gradient in forward.gradients(deltas) if name not in self._base.frozen
            }
            squares = torch.stack([gradient.squared() for gradient in gradients.values()])
            norms = squares.sum(0).clamp(min=0).sqrt()
            scales = 1.0 if training.clip_norm is None else (training.clip_norm / norms).clamp(max=1)
            rates = (self._rate * scales * torch.ones_like(norms)).float()
            for name, gradient in gradients.items():
                gradient.subtract(self._model.weights[name][:active], rates)
            losses.append(nats)
        found = [one.tolist() for one in losses]
        by_phone = [[found[step][place] for step in range(steps)] for place, steps in enumerate(self._steps)]
        return [by_phone[self._order.index(place)] for place in range(len(self._order))]

    def trained(self, place: int) -> dict[str, Array]:
        """The canonical weights of a phone, by its place in the order given."""
        at = self._order.index(place)
        tied, found = self._manifest.model.tied, {}
        scored = self._scored[at] if self._scored else None
        rows = {
            "decoder.weight": scored,
            "decoder.bias": scored,
            "embedding.weight": scored if tied else self._read[at],
        }
        for name, array in self._base.arrays.items():
            values, ids = self._model.weights[name][at].cpu().numpy(), rows.get(name)
            if ids is None:
                found[name] = values.reshape(array.shape)
                continue
            found[name] = array.copy()
            found[name][ids] = values[: len(ids)]
        return found

    def _words_read(self, phone: PreparedPhone) -> Ids:
        return np.unique(np.append(phone.text.stream, EOS))

    def _place_read(self, place: int, tokens: Ids) -> Ids:
        if not self._manifest.model.tied:
            return np.searchsorted(self._read[place], tokens)
        return self._place_scored(place, tokens)

    def _place_scored(self, place: int, ids: Ids) -> Ids:
        sample = self._phones[place].sample
        return ids if sample is None else sample.places(ids)

    def _padded(self, rows: Sequence[Array], fill: float) -> Tensor:
        """Rows of different lengths as one tensor [P, most]."""
        padded = np.full((len(rows), max(map(len, rows))), fill, rows[0].dtype)
        for row, values in zip(padded, rows, strict=True):
            row[: len(values)] = values
        return torch.from_numpy(padded).to(self._device)

    def _laid_out(self, layouts: Sequence[Sequence[Ids]], epochs: int) -> Tensor:
        """All windows of all phones, [steps, P, N]; what a phone that has ended would read is 0."""
        training = self._manifest.training
        placed = np.zeros((max(self._steps), len(layouts), training.bptt * training.minibatch), np.int64)
        for place, layout in enumerate(layouts):
            placed[: self._steps[place], place] = np.tile(np.stack(layout).reshape(len(layout), -1), (epochs, 1))
        return torch.from_numpy(placed).to(self._device)

    def _masks(self, step: int, active: int) -> list[Tensor]:
        """Dropout's of a step, [A, N, width] each."""
        model, training = self._manifest.model, self._manifest.training
        N = training.bptt * training.minibatch
        masks = []
        for place, node in enumerate(self._dropout_nodes):
            width = model.embedding if place == 0 else model.hidden
            drawn = [
                dropout_mask(phone.seed, step, node, training.dropout, N * width) for phone in self._phones[:active]
            ]
            masks.append(torch.from_numpy(np.stack(drawn).reshape(active, N, width)).to(self._device))
        return masks


def _continued(states: Sequence[State], active: int, at_start: Sequence[int]) -> list[State]:
    """The states of the phones that go on, zero where a text starts."""
    going_on = [tuple(part[:active] for part in state) for state in states]
    if at_start:
        for state in going_on:
            for part in state:
                part[at_start] = 0
    return going_on
