"""ONNX's LSTM and GRU, default activations, as the operators' specification has them, and a CIFG with its projection;
all in the dtype of what is given.
"""

from collections.abc import Mapping

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array

Values = Mapping[str, Array]


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(v: Values) -> Values:
    """x [T,B,E], w [1,4H,E], r [1,4H,H], b [1,8H] or none, h0 and c0 [1,B,H]; gates i, o, f, c."""
    H = v["r"].shape[2]
    h, c, steps = v["h0"][0], v["c0"][0], []
    for x in v["x"]:
        bias = v["b"][0, : 4 * H] + v["b"][0, 4 * H :] if "b" in v else 0
        i, o, f, g = np.split(x @ v["w"][0].T + h @ v["r"][0].T + bias, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        steps.append(h)
    return {"y": np.stack(steps)[:, None], "h": h[None], "c": c[None]}


def gru(v: Values) -> Values:
    """The same without c0 and with 3 gates z, r, h; linear_before_reset 1."""
    H = v["r"].shape[2]
    h, steps = v["h0"][0], []
    b = v["b"][0] if "b" in v else np.zeros(6 * H)
    for x in v["x"]:
        inputs, recurrent = x @ v["w"][0].T + b[: 3 * H], h @ v["r"][0].T + b[3 * H :]
        z, r = (sigmoid(part) for part in np.split((inputs + recurrent)[:, : 2 * H], 2, axis=1))
        n = np.tanh(inputs[:, 2 * H :] + r * recurrent[:, 2 * H :])
        h = (1 - z) * n + z * h
        steps.append(h)
    return {"y": np.stack(steps)[:, None], "h": h[None]}


def cifg(v: Values) -> Values:
    """An LSTM with f = 1 - i, gates i, o, c, that outputs and is fed back p m: r [1,3H,P], p [1,P,H], y [T,1,B,P]."""
    H = v["p"].shape[2]
    m, c, steps, units = v["h0"][0], v["c0"][0], [], []
    for x in v["x"]:
        bias = v["b"][0, : 3 * H] + v["b"][0, 3 * H :] if "b" in v else 0
        i, o, g = np.split(x @ v["w"][0].T + m @ v["p"][0].T @ v["r"][0].T + bias, 3, axis=1)
        c = (1 - sigmoid(i)) * c + sigmoid(i) * np.tanh(g)
        m = sigmoid(o) * np.tanh(c)
        units.append(m)
        steps.append(m @ v["p"][0].T)
    return {"y": np.stack(steps)[:, None], "h": m[None], "c": c[None], "m": np.stack(units)[:, None]}
