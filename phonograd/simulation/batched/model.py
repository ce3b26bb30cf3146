"""A language model over weights [P, ...] of P phones: each computes with its own, and a product is one of all phones.

W [P, G·H, I], R [P, G·H, H] and B [P, 2·G·H] of a recurrent layer are laid out as in weights.safetensors: gates i,o,f,c
or z,r,h. A window's tokens are N = T·B rows, time step by time step.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding

from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

EMBEDDING, DECODER, BIAS, PROJECTION = "embedding.weight", "decoder.weight", "decoder.bias", "projection.weight"

Weights = Mapping[str, Tensor]
# (h, c) of an LSTM or (h,) of a GRU, each [P, B, H].
State = tuple[Tensor, ...]


def logits_of(
    config: LanguageModelConfig,
    weights: Weights,
    tokens: Tensor,
    states: Sequence[State],
    masks: Sequence[Tensor],
    shifts: Tensor | None,
) -> tuple[Tensor, list[State]]:
    """One window through the model: logits [P, N, C], and each layer's state after it.

    tokens [P, N]: rows of the embedding; states: each layer's before the window; masks: dropout's, [P, N, width] each,
    of the embedding's output and each layer's, none without dropout; shifts [P, C]: added to the logits.
    """

    def masked(x: Tensor, place: int) -> Tensor:
        return x * masks[place] if masks else x

    table = weights[EMBEDDING]
    first_rows = table.shape[1] * torch.arange(len(tokens), device=tokens.device)[:, None]
    x = masked(embedding(tokens + first_rows, table.flatten(0, 1)), 0)
    cell = _lstm if config.cell == "lstm" else _gru
    after: list[State] = []
    for layer, state in enumerate(states):
        W, R, B = (weights[f"{config.cell}.{layer}.{part}"] for part in "WRB")
        x, state_after = cell(W, R, B, x, state)
        x = masked(x, layer + 1)
        after.append(state_after)
    if config.projected:
        x = x.bmm(weights[PROJECTION].mT)
    bias = torch.zeros_like(table[:, 0, :1]) if shifts is None else shifts
    if config.output_bias:
        bias = bias + weights[BIAS]
    return torch.baddbmm(bias[:, None], x, weights[EMBEDDING if config.tied else DECODER].mT), after


def _lstm(W: Tensor, R: Tensor, B: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
    h, c = state
    H = h.shape[2]
    first, second = B[:, None].chunk(2, 2)
    outputs = []
    for gates in _by_time(torch.baddbmm(first + second, x, W.mT), h):
        bounded, candidate = torch.split(torch.baddbmm(gates, h, R.mT), [3 * H, H], 2)
        i, o, f = bounded.sigmoid().chunk(3, 2)
        c = f * c + i * candidate.tanh()
        h = o * c.tanh()
        outputs.append(h)
    return torch.cat(outputs, 1), (h, c)


def _gru(W: Tensor, R: Tensor, B: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
    """linear_before_reset = 1, so the reset gate multiplies R·h + b."""
    (h,) = state
    H = h.shape[2]
    first, second = B[:, None].chunk(2, 2)
    outputs = []
    for inputs in _by_time(torch.baddbmm(first, x, W.mT), h):
        bounded, candidate = torch.split(inputs, [2 * H, H], 2)
        recurrent, reset = torch.split(torch.baddbmm(second, h, R.mT), [2 * H, H], 2)
        z, r = (bounded + recurrent).sigmoid().chunk(2, 2)
        h = torch.lerp((candidate + r * reset).tanh(), h, z)
        outputs.append(h)
    return torch.cat(outputs, 1), (h,)


def _by_time(rows: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    """[P, N, X] as T tensors [P, B, X]."""
    return torch.split(rows, state.shape[1], 1)


def losses_of(logits: Tensor, targets: Tensor, training: TrainingConfig, teacher: Tensor | None) -> Tensor:
    """Each phone's loss [P] in nats, summed over its tokens.

    targets [P, N]: places among the rows scored, or IGNORED; teacher: its logits, for LwF (paper P, eqs. 1-2).
    """
    log_chances = logits.log_softmax(2)
    losses = -log_chances.gather(2, targets.clamp(min=0)[..., None])[..., 0]
    if teacher is not None:
        soft = -(teacher.softmax(2) * log_chances).sum(2)
        losses = training.user_share * losses + (1 - training.user_share) * soft
    return (losses * (targets != IGNORED)).sum(1)
