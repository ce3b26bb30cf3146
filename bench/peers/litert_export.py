"""Convert the training step for LiteRT: python -m phonograd.bench.peers.litert_export ARTIFACTS PROGRAM

LiteRT has no operators for the gradients of sigmoid, tanh, rows of a table and slices, so others are used.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import load_tensors


class TrainingStep(tf.Module):  # type: ignore[misc]
    """The weights as variables, in the artifacts' layout, and one signature, `train`."""

    def __init__(self, artifacts: Artifacts):
        super().__init__()
        self._training, self._model = artifacts.manifest.training, artifacts.manifest.model
        self._weights = {
            name: tf.Variable(array, name=name) for name, array in load_tensors(artifacts.path(WEIGHTS)).items()
        }

    def train(self, tokens: Any, targets: Any, h: Any, c: Any) -> dict[str, Any]:
        """Update the weights. tokens, targets int32 [T, B]; h, c [layers, B, H]. Returns loss, and h and c after."""
        training, weights = self._training, {name: variable.read_value() for name, variable in self._weights.items()}
        with tf.GradientTape() as tape:
            tape.watch(list(weights.values()))
            loss, states = self._loss(weights, tokens, targets, h, c)
        gradients = tape.gradient(loss, weights)
        rate = tf.constant(training.learning_rate)
        if training.clip_norm is not None:
            norm = tf.sqrt(tf.add_n([tf.reduce_sum(gradient * gradient) for gradient in gradients.values()]))
            rate *= tf.minimum(1.0, training.clip_norm / norm)
        for name, variable in self._weights.items():
            variable.assign(weights[name] - rate * gradients[name])
        next_h, next_c = (tf.stack(parts) for parts in zip(*states, strict=True))
        return {"loss": loss, "next_h": next_h, "next_c": next_c}

    def _loss(self, weights: dict[str, Any], tokens: Any, targets: Any, h: Any, c: Any) -> tuple[Any, list[Any]]:
        training, states = self._training, []
        x = _rows(weights["embedding.weight"], tf.reshape(tokens, [-1]), self._model.vocabulary)
        for layer in range(self._model.layers):
            W, R, bias = (tf.squeeze(weights[f"lstm.{layer}.{part}"], 0) for part in "WRB")
            x, *after = self._layer(x, W, R, tf.reduce_sum(tf.reshape(bias, [2, -1]), 0), h[layer], c[layer])
            states.append(after)
        logits = tf.matmul(x, weights["decoder.weight"], transpose_b=True)
        if self._model.output_bias:
            logits += weights["decoder.bias"]
        chosen = tf.one_hot(tf.reshape(targets, [-1]), self._model.vocabulary)
        total = -tf.reduce_sum(tf.nn.log_softmax(logits) * chosen)
        tokens_of_step = training.minibatch * training.bptt
        return total / (training.minibatch if training.loss_reduction == "sum_over_time" else tokens_of_step), states

    def _layer(self, x: Any, W: Any, R: Any, bias: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
        """Outputs [T·B, H] of inputs [T·B, I], and the last h and c. Gates are in ONNX's order: i, o, f, c."""
        inputs, outputs = tf.matmul(x, W, transpose_b=True) + bias, []
        for of_step in tf.split(inputs, self._training.bptt):
            i, o, f, new = tf.split(of_step + tf.matmul(h, R, transpose_b=True), 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * _tanh(new)
            h = _sigmoid(o) * _tanh(c)
            outputs.append(h)
        return tf.concat(outputs, 0), h, c


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _sigmoid(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    y = tf.sigmoid(x)
    return y, lambda gradient: gradient * y * (1.0 - y)


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _tanh(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    y = tf.tanh(x)
    return y, lambda gradient: gradient * (1.0 - y * y)


def _rows(table: Any, ids: Any, count: int) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gather(table: Any) -> tuple[Any, Callable[[Any], Any]]:
        shape = [count, table.shape[1]]
        return tf.gather(table, ids), lambda gradient: tf.scatter_nd(ids[:, None], gradient, shape)

    return gather(table)


def main(folder: Path, program: Path) -> None:
    """Write the LiteRT program of the artifacts' training step."""
    artifacts = open_artifacts(folder)
    training, model = artifacts.manifest.training, artifacts.manifest.model
    ids = tf.TensorSpec([training.bptt, training.minibatch], tf.int32)
    states = tf.TensorSpec([model.layers, training.minibatch, model.hidden], tf.float32)
    step = TrainingStep(artifacts)
    function = tf.function(step.train).get_concrete_function(ids, ids, states, states)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], step)
    converter.experimental_enable_resource_variables = True
    write_bytes(program, converter.convert())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
