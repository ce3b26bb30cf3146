"""One training step of the LSTM language model in plain NumPy, to be read beside the engine. FORMAT.md, "Loss".

Letters: V words, E embedding, H hidden, T steps, B columns. Gates are in ONNX order: input, output, forget, cell. All
arithmetic is float32, as the engine's, in no particular order.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Weights = dict[str, Floats]


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x)."""
    return np.float32(1) / (1 + np.exp(-x))


def train_step(
    weights: Weights, tokens: Ids, targets: Ids, rate: float, clip_norm: float | None = None
) -> tuple[float, Weights]:
    """The loss before the step, L / B summed over time, and the weights after it.

    tokens, targets: [T, B], with -1 for padding. Recurrent states start at zero. The gradient of all tensors together
    is clipped at `clip_norm`.
    """
    layers = sum(name.endswith(".W") for name in weights)
    T, B = tokens.shape
    embedding = weights["embedding.weight"]  # [V,E]
    inputs, kept = embedding[tokens], []  # [T,B,E]
    for layer in range(layers):
        inputs, memory = lstm_forward(weights, f"lstm.{layer}", inputs)
        kept.append(memory)
    hidden = inputs.reshape(T * B, -1)  # [T·B,H]

    # The output layer: softmax over the vocabulary, and the gradient of its logits, p - 1 at the target.
    logits = hidden @ weights["decoder.weight"].T + weights["decoder.bias"]  # [T·B,V]
    shifted = logits - logits.max(axis=1, keepdims=True)
    chances = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    flat = targets.reshape(-1)
    counted = np.flatnonzero(flat >= 0)
    loss = -np.log(chances[counted, flat[counted]]).sum() / B
    d_logits = np.zeros_like(chances)
    d_logits[counted] = chances[counted]
    d_logits[counted, flat[counted]] -= 1
    d_logits /= np.float32(B)

    gradients: Weights = {
        "decoder.weight": d_logits.T @ hidden,
        "decoder.bias": d_logits.sum(axis=0),
    }
    d_inputs = (d_logits @ weights["decoder.weight"]).reshape(T, B, -1)
    for layer in reversed(range(layers)):
        d_inputs, found = lstm_backward(weights, f"lstm.{layer}", kept[layer], d_inputs)
        gradients |= found
    gradients["embedding.weight"] = np.zeros_like(embedding)
    np.add.at(gradients["embedding.weight"], tokens, d_inputs)

    norm = np.sqrt(sum(float(np.vdot(gradient, gradient)) for gradient in gradients.values()))
    scale = 1.0 if clip_norm is None else min(1.0, clip_norm / (norm + 1e-6))
    after = {name: (values - np.float32(rate * scale) * gradients[name]) for name, values in weights.items()}
    return float(loss), after


Memory = tuple[Floats, Floats, Floats, Floats]


def lstm_forward(weights: Weights, name: str, x: Floats) -> tuple[Floats, Memory]:
    """States h [T,B,H] after x [T,B,I], and what the way back needs: x, gates [T,B,4,H], cells c and h."""
    T, B, _ = x.shape
    W, R = weights[f"{name}.W"][0], weights[f"{name}.R"][0]  # [4H,I], [4H,H]
    H = R.shape[1]
    bias = weights[f"{name}.B"][0].reshape(2, 4 * H).sum(axis=0)
    gates, cells, states = (np.zeros(shape, np.float32) for shape in ((T, B, 4, H), (T, B, H), (T, B, H)))
    c = h = np.zeros((B, H), np.float32)
    for t in range(T):
        i, o, f, g = np.moveaxis((x[t] @ W.T + h @ R.T + bias).reshape(B, 4, H), 1, 0)
        i, o, f, g = sigmoid(i), sigmoid(o), sigmoid(f), np.tanh(g)
        c = f * c + i * g
        h = o * np.tanh(c)
        gates[t], cells[t], states[t] = np.stack([i, o, f, g], axis=1), c, h
    return states, (x, gates, cells, states)


def lstm_backward(weights: Weights, name: str, memory: Memory, d_states: Floats) -> tuple[Floats, Weights]:
    """The gradients of x [T,B,I] and of the layer's tensors, given that of its states [T,B,H]."""
    x, gates, cells, states = memory
    T, B, _ = x.shape
    W, R = weights[f"{name}.W"][0], weights[f"{name}.R"][0]
    H = R.shape[1]
    zero = np.zeros((B, H), np.float32)
    d_gates = np.zeros((T, B, 4 * H), np.float32)
    d_h, d_c = zero, zero
    for t in reversed(range(T)):
        i, o, f, g = np.moveaxis(gates[t], 1, 0)
        before = cells[t - 1] if t else zero
        squashed = np.tanh(cells[t])
        d_h = d_h + d_states[t]
        d_c = d_c + d_h * o * (1 - squashed * squashed)
        d_i, d_o, d_f, d_g = d_c * g, d_h * squashed, d_c * before, d_c * i
        parts = (d_i * i * (1 - i), d_o * o * (1 - o), d_f * f * (1 - f), d_g * (1 - g * g))
        d_gates[t] = np.concatenate(parts, axis=1)
        d_h, d_c = d_gates[t] @ R, d_c * f
    shifted = np.concatenate([zero[None], states[:-1]])  # h before each step
    flat = d_gates.reshape(T * B, 4 * H)
    d_bias = flat.sum(axis=0)
    return d_gates @ W, {
        f"{name}.W": (flat.T @ x.reshape(T * B, -1))[None],
        f"{name}.R": (flat.T @ shifted.reshape(T * B, H))[None],
        f"{name}.B": np.concatenate([d_bias, d_bias])[None],
    }
