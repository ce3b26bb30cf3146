"""Deep Gradient Compression against its algorithm, and a model trained with it."""

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.papers.few_nodes.dgc import DgcNode, SparseGradient, apply, sparsity


def gradients(step: int) -> dict[str, Array]:
    random = np.random.default_rng(step)
    return {"a": random.normal(size=(8, 5)).astype(np.float32), "b": random.normal(size=7).astype(np.float32)}


def dense(sent: dict[str, SparseGradient]) -> dict[str, Array]:
    found = {name: np.zeros_like(values) for name, values in gradients(0).items()}
    apply(found, [sent], -1.0)
    return found


def test_what_is_not_sent_is_sent_later() -> None:
    node = DgcNode(nodes=1)
    unsent = {name: np.zeros_like(values) for name, values in gradients(0).items()}
    for step in range(6):
        sent = dense(node.compress(gradients(step), 0.8))
        for name, gradient in gradients(step).items():
            unsent[name] += gradient
            largest = np.sort(np.abs(unsent[name]), axis=None)[::-1]
            count = {"a": 8, "b": 2}[name]
            mask = np.abs(unsent[name]) >= largest[count - 1]
            np.testing.assert_allclose(sent[name], np.where(mask, unsent[name], 0), rtol=1e-5)
            unsent[name][mask] = 0


def test_a_node_clips_its_gradients_to_its_part_of_the_norm() -> None:
    sent = dense(DgcNode(nodes=4, clip_norm=1.0).compress(gradients(1), 0.0))
    assert np.sqrt(sum((values**2).sum() for values in sent.values())) == pytest.approx(0.5, rel=1e-5)


def test_the_mean_of_the_nodes_is_applied() -> None:
    weights = {"b": np.zeros(7, np.float32)}
    messages = [
        {"b": SparseGradient(np.array([1, 3], np.int32), np.array([2, 4], np.float32))},
        {"b": SparseGradient(np.array([3], np.int32), np.array([6], np.float32))},
    ]
    apply(weights, messages, 0.5)
    np.testing.assert_array_equal(weights["b"], [0, -0.5, 0, -2.5, 0, 0, 0])
    assert [message["b"].nbytes for message in messages] == [16, 8]


def test_the_warm_up_rises_to_a_thousandth() -> None:
    shares = [sparsity(epoch) for epoch in range(7)]
    assert shares == sorted(shares) and shares[0] == 0.75 and shares[-1] == 0.999
