"""What pre-training computes: one SGD step, the perplexity of a text, and the device both run on."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.errors import ArtifactsError, TrainingError
from phonograd.device_runtime.text.vocabulary import UNK, Ids
from phonograd.export.corpus import evaluation_columns
from phonograd.export.pretrain_config import Perplexities, PretrainConfig
from phonograd.export.torch_model import LanguageModel, RecurrentState


def pick_device(config: PretrainConfig) -> torch.device:
    """The device `config` means. Raises ArtifactsError if there is none or it can't train in that precision."""
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
            f"pre-training: step {step + 1}: loss {mean:g} and gradient norm {norm:g}, expected finite numbers; "
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
