"""Pre-training in PyTorch: SGD with truncated BPTT after Zaremba et al. (2014), the recipe of paper P.

On a CPU, starting Python with `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=268435456` keeps
the C library from giving the logits' pages back and faulting them in again at every step.
"""

import contextlib
import math
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.errors import ArtifactsError, TrainingError
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from phonograd.device_runtime.text.vocabulary import UNK, Ids
from phonograd.export.corpus import evaluation_columns, training_columns
from phonograd.export.pretrain_config import Perplexities, PretrainConfig
from phonograd.export.pretrain_state import PretrainState
from phonograd.export.pretrain_trainer import Heard, Job, Stop
from phonograd.export.torch_model import LanguageModel, RecurrentState


class TorchTrainer:
    """See Trainer. Dropout needs no random state: each step draws from a seed made of the run's and the step's number;
    plain SGD has no state either. Raises ArtifactsError as `pick_device`.
    """

    def __init__(self, job: Job, state: PretrainState):
        config = job.config
        self._config, self._state = config, state
        self._columns = training_columns(job.corpus.training, config.minibatch, config.bptt)
        self._validation = job.vocabulary.encode(job.corpus.validation)
        self._device = pick_device(config)
        with self._own_random_state():
            self._network = LanguageModel(job.model, config.dropout, config.seed).to(self._device)
        self._recurrent = self._network.zero_state(config.minibatch)
        if state.steps:
            self._load()

    @property
    def windows(self) -> int:
        """See Trainer."""
        return self._columns.windows

    def train(self, steps: int, last: int, heard: Heard, stop: Stop) -> int:
        """See Trainer: to the next checkpoint or epoch's end, or to where `stop` says so."""
        config = self._config
        last = min(last, *((steps // every + 1) * every for every in (self.windows, config.checkpoint_steps)))
        with self._own_random_state():
            while steps < last and not stop():
                began, step = time.perf_counter(), steps % self.windows
                if step == 0:
                    self._recurrent = self._network.zero_state(config.minibatch)
                window = self._columns.window(step)
                rate = config.learning_rate_after(steps / self.windows) * self._state.slowed
                loss, self._recurrent = train_step(
                    self._network, window, self._recurrent, config=config, step=steps, learning_rate=rate
                )
                steps += 1
                heard(steps, rate, loss, window[0].size / (time.perf_counter() - began))
        return steps

    def evaluate(self) -> Perplexities:
        """See Trainer."""
        return evaluate(self._network, self._validation, self._config.minibatch, self._config.bptt)

    def weights(self) -> Mapping[str, Array]:
        """See Trainer."""
        return self._network.weights()

    def restart(self, steps: int, weights: dict[str, Array]) -> int:
        """See Trainer. Recurrent states start at zero if the state has none."""
        if steps == self._state.steps > 0:
            self._load()
        else:
            self._recurrent = self._network.zero_state(self._config.minibatch)
            self._network.load(weights)
        return steps

    def _load(self) -> None:
        stored = load_tensors(self._state.weights(self._state.steps))
        self._recurrent = tuple(torch.from_numpy(stored.pop(name)).to(self._device) for name in self._names())
        self._network.load(stored)

    def save(self, steps: int) -> str:
        """See Trainer: the weights and the recurrent state."""
        carried = (tensor.cpu().numpy() for tensor in self._recurrent)
        tensors = self._network.weights() | dict(zip(self._names(), carried, strict=True))
        return save_tensors(self._state.weights(steps), tensors).sha256

    def _names(self) -> list[str]:
        return [f"state.{name}" for name in self._network.config.states]

    def _own_random_state(self) -> contextlib.AbstractContextManager[None]:
        """PyTorch's global generator, from which dropout draws, is the caller's again after the block."""
        return torch.random.fork_rng(devices=[self._device.index or 0] if self._device.type == "cuda" else [])


def pick_device(config: PretrainConfig) -> torch.device:
    """The device `config` means. Raises ArtifactsError if it is missing or can't train in that precision."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ArtifactsError("pre-training: device is cuda, PyTorch finds none here; choose auto or cpu")
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.precision == "bf16" and not trains_bf16(device):
        raise ArtifactsError(
            f"pre-training: precision is bf16, and this {device.type} can't train in bfloat16; choose fp32"
        )
    return device


def trains_bf16(device: torch.device) -> bool:
    """Whether a recurrent layer trains under bfloat16 autocast there; told by trying (CPUs need AVX-512 at least)."""
    layer = nn.LSTM(16, 16).to(device)
    try:
        with torch.autocast(device.type, torch.bfloat16):
            layer(torch.zeros(1, 1, 16, device=device))
    except RuntimeError:
        return False
    return True


def train_step(
    model: LanguageModel, window: tuple[Ids, Ids], state: RecurrentState, *,
    config: PretrainConfig, step: int, learning_rate: float,
) -> tuple[float, RecurrentState]:  # fmt: skip
    """Train on a window of inputs and targets [T, B]; returns the loss, nats per token, and the state to carry on.

    `step` counts from the run's beginning: with `config.seed` it determines the dropout masks, so that no random state
    needs saving. Sets the seed of PyTorch's global generator. Raises TrainingError, the weights unchanged, if the loss
    or the gradient is not finite.
    """
    device = model.embedding.weight.device
    inputs, targets = (to_tensor(ids, device) for ids in window)
    torch.manual_seed(int(np.random.SeedSequence((config.seed, step)).generate_state(1)[0]))
    with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
        logits, after = model(inputs, state)
        # Summed over the T steps, averaged over the minibatch: what the learning rate and the clip norm are meant for.
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / config.minibatch
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    norm = nn.utils.get_total_norm(gradients).item()
    mean = loss.item() / len(inputs)
    if not (math.isfinite(mean) and math.isfinite(norm)):
        raise TrainingError(
            f"step {step + 1}: loss {mean:g} and gradient norm {norm:g}, expected finite numbers; "
            f"the learning rate is {learning_rate:g}, clip norm {config.clip_norm}: choose a lower learning rate"
        )
    # Clipping only scales the step: no pass over the gradients of its own, and plain SGD needs no optimizer object.
    clipped = 1.0 if config.clip_norm is None else config.clip_norm / max(norm, config.clip_norm)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.add_(gradient, alpha=-learning_rate * clipped)
    return mean, tuple(tensor.detach().float() for tensor in after)


def evaluate(model: LanguageModel, stream: Ids, minibatch: int, bptt: int) -> Perplexities:
    """Perplexities of a stream; state carried over, no dropout.

    Raises TextError for a stream below 2 tokens, TrainingError if the perplexity is not finite.
    """
    columns = evaluation_columns(stream, minibatch, bptt)
    state, device = model.zero_state(columns.minibatch), model.embedding.weight.device
    was_training = model.training
    model.eval()
    total = known = 0.0
    known_tokens = 0
    with torch.no_grad():
        for index in range(columns.windows):
            inputs, targets = (to_tensor(ids, device) for ids in columns.window(index))
            logits, state = model(inputs, state)
            losses = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            total += losses.sum().item()
            known += losses[targets.flatten() != UNK].sum().item()
            known_tokens += int((targets != UNK).sum())
    model.train(was_training)
    mean, known_mean = total / columns.inputs.size, known / max(1, known_tokens)
    if not max(mean, known_mean) < math.log(np.finfo(np.float64).max):  # NaN compares false
        raise TrainingError(
            f"validation: loss is {mean:g} nats per token, expected a finite perplexity; choose a lower learning rate"
        )
    return Perplexities(math.exp(known_mean), math.exp(mean))


def to_tensor(ids: Ids, device: torch.device) -> Tensor:
    """Ids as a contiguous int64 tensor of the same shape."""
    return torch.from_numpy(np.ascontiguousarray(ids)).to(device)
