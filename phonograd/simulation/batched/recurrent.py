"""Recurrent layers of P phones side by side, forward and back through time.

W [P, G·H, I], R [P, G·H, H] and B [P, 2·G·H] are laid out as in weights.safetensors: gates i,o,f,c or z,r,h. A window's
tokens are N = T·B rows, time step by time step. A step of time is one product of all phones, and a backward sweep only
computes the gates' deltas: each weight's gradient is the product of two factors, which nobody needs to store.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from phonograd.device_runtime.formats.model_config import Cell

# (h, c) of an LSTM or (h,) of a GRU, each [P, B, H].
State = tuple[Tensor, ...]


@dataclass(frozen=True)
class LayerWeights:
    """One layer's: W, R and B as above."""

    W: Tensor
    R: Tensor
    B: Tensor


@dataclass(frozen=True)
class LayerGradients:
    """Those of a layer. W's is deltasᵀ·inputs [P, G·H, N]·[P, N, I], R's recurrent_deltasᵀ·previous; B's is `bias`."""

    inputs: Tensor  # x's own gradient, [P, N, I]
    deltas: Tensor  # [P, N, G·H]
    recurrent_deltas: Tensor
    previous: Tensor  # the hidden states before each step, [P, N, H]

    @property
    def bias(self) -> Tensor:
        """[P, 2·G·H]."""
        return torch.cat((self.deltas.sum(1), self.recurrent_deltas.sum(1)), 1)


class Sweep(Protocol):
    """A layer's forward pass over one window, which keeps what the backward pass needs."""

    outputs: Tensor  # [P, N, H]
    state: State  # after the window

    def backward(self, deltas: Tensor) -> LayerGradients:
        """From the outputs' gradient [P, N, H]; nothing flows back into the window before."""
        ...


def sweep(cell: Cell, weights: LayerWeights, inputs: Tensor, state: State) -> Sweep:
    """Run a layer on inputs [P, N, I]."""
    return LstmSweep(weights, inputs, state) if cell == "lstm" else GruSweep(weights, inputs, state)


class LstmSweep:
    """See Sweep."""

    def __init__(self, weights: LayerWeights, inputs: Tensor, state: State):
        self._weights = weights
        H, R = weights.R.shape[2], weights.R.mT
        first, second = weights.B.chunk(2, 1)
        columns = state[0].shape[1]
        gates = _by_time(torch.baddbmm((first + second).unsqueeze(1), inputs, weights.W.mT), columns)
        hidden, cells = (_with_first(part, len(gates)) for part in state)
        for t, gate in enumerate(gates):
            gate.baddbmm_(hidden[t], R)
            gate[..., : 3 * H].sigmoid_()
            gate[..., 3 * H :].tanh_()
            i, o, f, c = gate.chunk(4, -1)
            torch.mul(f, cells[t], out=cells[t + 1]).addcmul_(i, c)
            torch.mul(o, cells[t + 1].tanh(), out=hidden[t + 1])
        self._gates, self._hidden, self._cells = gates, hidden, cells
        self.outputs = _by_phone(hidden[1:])
        self.state: State = (hidden[-1], cells[-1])

    def backward(self, deltas: Tensor) -> LayerGradients:
        """See Sweep."""
        weights, cells = self._weights, self._cells
        gates = torch.empty_like(self._gates)
        dh = _by_time(deltas, cells.shape[2])
        dc = torch.zeros_like(cells[0])
        for t in reversed(range(len(gates))):
            if t + 1 < len(gates):
                dh[t].baddbmm_(gates[t + 1], weights.R)
            i, o, f, c = self._gates[t].chunk(4, -1)
            bent = cells[t + 1].tanh()
            dc += dh[t] * o * (1 - bent * bent)
            di, do, df, dg = gates[t].chunk(4, -1)
            torch.mul(dc * c, i * (1 - i), out=di)
            torch.mul(dh[t] * bent, o * (1 - o), out=do)
            torch.mul(dc * cells[t], f * (1 - f), out=df)
            torch.mul(dc * i, 1 - c * c, out=dg)
            dc *= f
        found = _by_phone(gates)
        return LayerGradients(found.bmm(weights.W), found, found, _by_phone(self._hidden[:-1]))


class GruSweep:
    """See Sweep; linear_before_reset = 1, so the reset gate multiplies R·h + b."""

    def __init__(self, weights: LayerWeights, inputs: Tensor, state: State):
        self._weights = weights
        H, R = weights.R.shape[2], weights.R.mT
        first, second = (part.unsqueeze(1) for part in weights.B.chunk(2, 1))
        columns = state[0].shape[1]
        gates = _by_time(torch.baddbmm(first, inputs, weights.W.mT), columns)
        hidden = _with_first(state[0], len(gates))
        recurrent = torch.empty_like(hidden[1:])  # R·h + b of the candidate gate
        for t, gate in enumerate(gates):
            product = torch.baddbmm(second, hidden[t], R)
            recurrent[t] = product[..., 2 * H :]
            gate[..., : 2 * H].add_(product[..., : 2 * H]).sigmoid_()
            z, r, n = gate.chunk(3, -1)
            n.addcmul_(r, recurrent[t]).tanh_()
            torch.lerp(n, hidden[t], z, out=hidden[t + 1])
        self._gates, self._hidden, self._recurrent = gates, hidden, recurrent
        self.outputs = _by_phone(hidden[1:])
        self.state: State = (hidden[-1],)

    def backward(self, deltas: Tensor) -> LayerGradients:
        """See Sweep."""
        weights, hidden = self._weights, self._hidden
        gates = torch.empty_like(self._gates)
        recurrent = torch.empty_like(self._gates)
        dh = _by_time(deltas, hidden.shape[2])
        carried = torch.zeros_like(hidden[0])
        for t in reversed(range(len(gates))):
            if t + 1 < len(gates):
                dh[t].add_(carried).baddbmm_(recurrent[t + 1], weights.R)
            z, r, n = self._gates[t].chunk(3, -1)
            dz, dr, dn = gates[t].chunk(3, -1)
            torch.mul(dh[t] * (1 - z), 1 - n * n, out=dn)
            torch.mul(dh[t] * (hidden[t] - n), z * (1 - z), out=dz)
            torch.mul(dn * self._recurrent[t], r * (1 - r), out=dr)
            recurrent[t] = gates[t]
            recurrent[t].chunk(3, -1)[2].mul_(r)
            carried = dh[t] * z
        found = _by_phone(gates)
        return LayerGradients(found.bmm(weights.W), found, _by_phone(recurrent), _by_phone(hidden[:-1]))


def _by_time(rows: Tensor, columns: int) -> Tensor:
    """[P, N, X] as [T, P, B, X] of its own memory."""
    P, _, width = rows.shape
    return rows.reshape(P, -1, columns, width).transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _by_phone(steps: Tensor) -> Tensor:
    """[T, P, B, X] as [P, N, X]."""
    return steps.transpose(0, 1).flatten(1, 2)


def _with_first(state: Tensor, steps: int) -> Tensor:
    """Room for the states [T + 1, P, B, H], the first filled in."""
    states = state.new_empty((steps + 1, *state.shape))
    states[0] = state
    return states
