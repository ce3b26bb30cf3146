"""CIFG in PyTorch: an LSTM with coupled input and forget gates, and a recurrent projection (Sak et al. 2014)."""

import math
import warnings

import torch
from torch import Tensor, nn


class Cifg(nn.Module):
    """`layers` of it, called as nn.LSTM is: x [T, B, I] and the state (m, c) before it, each [layers, B, H].

    m is o·tanh(c), P m [E] what the layer outputs and is fed back. The forget gate is 1 - i. Each layer's weights are
    those of nn.LSTM with proj_size = I but for the rows of f: i, g, o. The products are that module's.
    """

    def __init__(self, inputs: int, hidden: int, layers: int, dropout: float = 0.0):
        super().__init__()
        self.layers, self.dropout = layers, dropout
        limit = 1 / math.sqrt(hidden)
        for layer in range(layers):
            shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("weight_ih", "weight_hh"), (3 * hidden, inputs))
            shapes |= dict.fromkeys(("bias_ih", "bias_hh"), (3 * hidden,))
            for name, shape in {**shapes, "weight_hr": (inputs, hidden)}.items():
                self.register_parameter(f"{name}_l{layer}", nn.Parameter(torch.empty(shape).uniform_(-limit, limit)))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The last layer's outputs [T, B, I], and the state after them."""
        after = []
        for layer, (m, c) in enumerate(zip(*state, strict=True)):
            if layer > 0:
                x = nn.functional.dropout(x, self.dropout, self.training)
            x, *ends = self._layer(layer, x, m, c)
            after.append(ends)
        last_m, last_c = (torch.stack(parts) for parts in zip(*after, strict=True))
        return x, (last_m, last_c)

    def _layer(self, layer: int, x: Tensor, m: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        W, R, b_in, b_recurrent = (_four_gates(self.get_parameter(f"{name}_l{layer}")) for name in names)
        P = self.get_parameter(f"weight_hr_l{layer}")
        if len(P) == len(P.T):  # which torch.lstm takes for none
            weights = [W, R @ P, b_in, b_recurrent]
            units, *ends = torch.lstm(x, (m[None], c[None]), weights, True, 1, 0.0, self.training, False, False)
            return units @ P.T, ends[0][0], ends[1][0]
        first = m @ P.T
        weights = [W, R, b_in, b_recurrent, P]
        with warnings.catch_warnings():  # oneDNN has no projection
            warnings.simplefilter("ignore", UserWarning)
            y, _, last_c = torch.lstm(x, (first[None], c[None]), weights, True, 1, 0.0, self.training, False, False)
        # nn.LSTM keeps P m alone: the last m again, from its output gate.
        W, R, b_in, b_recurrent = (rows.chunk(4)[3] for rows in (W, R, b_in, b_recurrent))
        before = y[-2] if len(y) > 1 else first
        gate = torch.sigmoid(x[-1] @ W.T + b_in + before @ R.T + b_recurrent)
        return y, gate * torch.tanh(last_c[0]), last_c[0]


def _four_gates(rows: Tensor) -> Tensor:
    """Rows i, g, o as nn.LSTM's i, f, g, o: 1 - sigmoid(x) is sigmoid(-x)."""
    i, g, o = rows.chunk(3)
    return torch.cat((i, -i, g, o))
