"""The general model of digits: a perceptron trained by torch, with momentum and weight decay (P, Table 3)."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.base.random_words import stream_of
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.export.perceptron import PerceptronConfig
from phonograd.papers.images.dataset import Images

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Pretraining(Record, frozen=True):
    """Epochs with the same settings of torch's SGD."""

    epochs: Positive
    learning_rate: float
    momentum: float
    weight_decay: float


def pretrain(
    config: PerceptronConfig,
    weights: Mapping[str, Array],
    images: Images,
    phases: Sequence[Pretraining],
    minibatch: int,
    seed: int,
    threads: int,
    state: Path,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Array]:
    """Train from `weights` on all images, in a new random order each epoch; returns the new weights.

    state: a file of weights, momentum and epoch, written after each epoch; the same call resumes from it and, on a CPU,
    ends in the same bits. progress hears (epochs done, epochs in all). Images that do not fill the last minibatch are
    left out of that epoch. Raises TrainingError for a loss that is not finite, StorageError.
    """
    torch.set_num_threads(threads)
    model = Perceptron(config).to(DEVICE)
    model.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
    optimizer = torch.optim.SGD(model.parameters(), fused=True)
    done = 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        done = saved["epochs"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    pixels, labels = (torch.from_numpy(part).to(DEVICE) for part in (images.pixels, images.labels))
    epochs = [phase for phase in phases for _ in range(phase.epochs)]
    for number, phase in enumerate(epochs[done:], done + 1):
        rates = {"lr": phase.learning_rate, "momentum": phase.momentum, "weight_decay": phase.weight_decay}
        optimizer.param_groups[0].update(rates)
        torch.manual_seed(stream_of(seed, f"epoch {number}"))  # of the order and of dropout
        _epoch(model, optimizer, pixels, labels, minibatch)
        buffer = io.BytesIO()
        torch.save({"epochs": number, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        write_bytes(state, buffer.getvalue())
        if progress is not None:
            progress(number, len(epochs))
    return {name: values.cpu().numpy() for name, values in model.state_dict().items()}


class Perceptron(nn.ModuleList):
    """`export.perceptron`'s graph and names in torch."""

    def __init__(self, config: PerceptronConfig):
        super().__init__(nn.Linear(*sizes) for sizes in pairwise(config.sizes))
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs] to logits [N, classes]; with dropout."""
        for place, layer in enumerate(self):
            x = nn.functional.dropout(
                x.relu() if place else x, self.config.hidden_dropout if place else self.config.input_dropout
            )
            x = layer(x)
        return x


def _epoch(model: Perceptron, optimizer: torch.optim.Optimizer, pixels: Tensor, labels: Tensor, minibatch: int) -> None:
    steps = len(labels) // minibatch
    for places in torch.randperm(len(labels))[: steps * minibatch].view(steps, minibatch).to(DEVICE):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels[places]), labels[places])
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        if model.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), model.config.clip_norm)
        optimizer.step()
    require_finite(loss, optimizer.param_groups[0]["lr"])


def require_finite(loss: Tensor, learning_rate: float) -> None:
    """Raise TrainingError unless the last minibatch's loss is finite: weights that once were not stay so."""
    if not math.isfinite(float(loss.detach())):
        raise TrainingError(f"the loss is not finite at learning rate {learning_rate}; use a smaller one")
