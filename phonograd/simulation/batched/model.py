"""A language model over weights [P, ...] of P phones: each computes with its own, and a product is one of all phones.

W [P, G·H, I], R [P, G·H, H] and B [P, 2·G·H] of a recurrent layer are laid out as in weights.safetensors: gates
i,o,f,c, z,r,h or i,o,c. A window's tokens are N = T·B rows, time step by time step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding

from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B, Cell, LanguageModelConfig

MATRICES: Mapping[Cell, str] = {"lstm": "WR", "gru": "WR", "cifg": "WRP"}
EMBEDDING, DECODER, BIAS, PROJECTION = "embedding.weight", "decoder.weight", "decoder.bias", "projection.weight"

Weights = Mapping[str, Tensor]
# (h, c) of an LSTM, (h,) of a GRU or (m, c) of a CIFG, which is fed back P m, each [P, B, H].
State = tuple[Tensor, ...]


class Matrix(NamedTuple):
    """W [P, rows, columns], or W + B A with an adapter, of which no product is made."""

    W: Tensor
    A: Tensor | None
    B: Tensor | None

    @classmethod
    def of(cls, weights: Weights, name: str) -> "Matrix":
        """That of this name."""
        return cls(weights[name], weights.get(name + ADAPTER_A), weights.get(name + ADAPTER_B))

    def rows(self, ids: Tensor) -> Tensor:
        """Those of ids [P, N]: [P, N, columns]."""
        rows = _rows(self.W, ids)
        return rows if self.A is None or self.B is None else rows.baddbmm(_rows(self.B, ids), self.A)

    def product(self, x: Tensor, added: Tensor) -> Tensor:
        """`added` + x W^T, of x [P, N, columns]."""
        y = torch.baddbmm(added, x, self.W.mT)
        return y if self.A is None or self.B is None else y.baddbmm(x.bmm(self.A.mT), self.B.mT)


def _rows(table: Tensor, ids: Tensor) -> Tensor:
    if table.stride(0) == 0:  # that of all phones
        return embedding(ids, table[0])
    first_rows = table.shape[1] * torch.arange(len(ids), device=ids.device)[:, None]
    return embedding(ids + first_rows, table.flatten(0, 1))


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

    table = Matrix.of(weights, EMBEDDING)
    x = masked(table.rows(tokens), 0)
    cells: dict[Cell, Callable[..., tuple[Tensor, State]]] = {"lstm": _lstm, "gru": _gru, "cifg": _cifg}
    after: list[State] = []
    for layer, state in enumerate(states):
        matrices = [Matrix.of(weights, f"{config.cell}.{layer}.{part}") for part in MATRICES[config.cell]]
        x, state_after = cells[config.cell](*matrices, weights[f"{config.cell}.{layer}.B"], x, state)
        x = masked(x, layer + 1)
        after.append(state_after)
    if config.projected:
        x = Matrix.of(weights, PROJECTION).product(x, x.new_zeros(1, 1, 1))
    bias = torch.zeros_like(table.W[:, 0, :1]) if shifts is None else shifts
    if config.output_bias:
        bias = bias + weights[BIAS]
    return (table if config.tied else Matrix.of(weights, DECODER)).product(x, bias[:, None]), after


def _lstm(W: Matrix, R: Matrix, B: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
    h, c = state
    H = h.shape[2]
    first, second = B[:, None].chunk(2, 2)
    outputs = []
    for gates in _by_time(W.product(x, first + second), h):
        bounded, candidate = torch.split(R.product(h, gates), [3 * H, H], 2)
        i, o, f = bounded.sigmoid().chunk(3, 2)
        c = f * c + i * candidate.tanh()
        h = o * c.tanh()
        outputs.append(h)
    return torch.cat(outputs, 1), (h, c)


def _gru(W: Matrix, R: Matrix, B: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
    """linear_before_reset = 1, so the reset gate multiplies R·h + b."""
    (h,) = state
    H = h.shape[2]
    first, second = B[:, None].chunk(2, 2)
    outputs = []
    for inputs in _by_time(W.product(x, first), h):
        bounded, candidate = torch.split(inputs, [2 * H, H], 2)
        recurrent, reset = torch.split(R.product(h, second), [2 * H, H], 2)
        z, r = (bounded + recurrent).sigmoid().chunk(2, 2)
        h = torch.lerp((candidate + r * reset).tanh(), h, z)
        outputs.append(h)
    return torch.cat(outputs, 1), (h,)


def _cifg(W: Matrix, R: Matrix, P: Matrix, B: Tensor, x: Tensor, state: State) -> tuple[Tensor, State]:
    """The forget gate is 1 - i."""
    m, c = state
    H = m.shape[2]
    none = m.new_zeros(1, 1, 1)
    h = P.product(m, none)
    first, second = B[:, None].chunk(2, 2)
    outputs = []
    for gates in _by_time(W.product(x, first + second), h):
        bounded, candidate = torch.split(R.product(h, gates), [2 * H, H], 2)
        i, o = bounded.sigmoid().chunk(2, 2)
        c = torch.lerp(c, candidate.tanh(), i)
        m = o * c.tanh()
        h = P.product(m, none)
        outputs.append(h)
    return torch.cat(outputs, 1), (m, c)


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
