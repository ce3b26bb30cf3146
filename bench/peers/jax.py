"""JAX: the training step as one compiled function, which may reuse the memory of weights and states (donated buffers).

Runs in an environment of its own.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from phonograd.bench.environment import version_of
from phonograd.bench.peers.untied_lstm import require_untied_lstm
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.formats.manifest import WEIGHTS, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors

Weights = dict[str, Any]
State = tuple[Any, ...]  # h and c of each layer, [B, H]


class JaxContestant:
    """The untied LSTM with ce. Raises UnavailableError for other models."""

    def __init__(self, job: Job):
        artifacts = open_artifacts(Path(job.artifacts), verify=False)
        self._training, model = artifacts.manifest.training, artifacts.manifest.model
        require_untied_lstm(artifacts.manifest)
        # JAX has no option for it: it starts as many threads as there are cores to run on.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
        self._weights: Weights = {
            name: jnp.array(array) for name, array in load_tensors(artifacts.path(WEIGHTS)).items()
        }
        zeros = np.zeros((self._training.minibatch, model.hidden), np.float32)
        self._state: State = tuple(jnp.array(zeros) for _ in range(2 * model.layers))
        self._step = jax.jit(_training_step(self._training), donate_argnums=(0, 1))
        self.about: Mapping[str, Any] = {"versions": version_of("jax", "jaxlib")}

    def step(self, tokens: Ids, targets: Ids) -> float:
        """See Contestant."""
        ids = (part.astype(np.int32) for part in (tokens, targets))
        self._weights, self._state, loss = jax.block_until_ready(self._step(self._weights, self._state, *ids))
        return float(loss)

    def weights(self) -> dict[str, Array]:
        """Of `bench parity`: the tensors as they are now."""
        return {name: np.array(array) for name, array in self._weights.items()}


def _training_step(training: TrainingConfig) -> Any:
    """(weights, state, tokens [T, B], targets [T, B]) to (weights, state, loss)."""

    def step(weights: Weights, state: State, tokens: Any, targets: Any) -> tuple[Weights, State, Any]:
        (loss, after), gradients = jax.value_and_grad(_loss, has_aux=True)(weights, state, tokens, targets, training)
        rate = training.learning_rate
        if training.clip_norm is not None:
            norm = jnp.sqrt(sum(jnp.sum(gradient * gradient) for gradient in gradients.values()))
            rate *= jnp.minimum(1.0, training.clip_norm / norm)
        return {name: weights[name] - rate * gradients[name] for name in weights}, after, loss

    return step


def _loss(weights: Weights, state: State, tokens: Any, targets: Any, training: TrainingConfig) -> tuple[Any, State]:
    T, B = tokens.shape
    x = weights["embedding.weight"][tokens]
    after: State = ()
    for layer in range(len(state) // 2):
        W, R, bias = (weights[f"lstm.{layer}.{part}"][0] for part in "WRB")
        x, states = _layer(x, W, R, bias.reshape(2, -1).sum(0), state[2 * layer : 2 * layer + 2])
        after += states
    logits = x.reshape(T * B, -1) @ weights["decoder.weight"].T + weights.get("decoder.bias", 0.0)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets.reshape(-1, 1), axis=1)
    summed = training.loss_reduction == "sum_over_time"
    return -chosen.sum() / (B if summed else T * B), tuple(map(lax.stop_gradient, after))


def _layer(x: Any, W: Any, R: Any, bias: Any, state: State) -> tuple[Any, State]:
    """Outputs [T, B, H] of inputs [T, B, I], and the last h and c. Gates are in ONNX's order: i, o, f, c."""

    def time_step(before: State, inputs: Any) -> tuple[State, Any]:
        h, c = before
        i, o, f, new = jnp.split(inputs + h @ R.T, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(new)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    after, outputs = lax.scan(time_step, tuple(state), x @ W.T + bias)
    return outputs, after


load = JaxContestant
