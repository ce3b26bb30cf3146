"""Training across nodes with Deep Gradient Compression: one model, gradients exchanged after every step (torch)."""

from collections.abc import Callable, Sequence

import torch

from phonograd.device_runtime.engine.backend import IGNORED, Window
from phonograd.device_runtime.formats.manifest import Manifest
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.vocabulary import Ids
from phonograd.device_runtime.text.windows import windows
from phonograd.export.torch_model import LanguageModel, RecurrentState
from phonograd.papers.few_nodes.dgc import DgcNode, apply, sparsity
from phonograd.papers.node_round import Pass


def train_compressed(
    manifest: Manifest,
    weights: dict[str, Array],
    streams: Sequence[Ids],
    passes: Sequence[Pass],
    threads: int,
    progress: Callable[[int, float], None] | None = None,
) -> tuple[dict[str, Array], int, int]:
    """Train from canonical `weights` on the nodes' streams; returns the new weights, uploads, and bytes uploaded.

    The loss, minibatch, BPTT and clip norm are the manifest's. threads: of torch. progress: called after each epoch
    with its number and its mean loss, nats a token.
    """
    torch.set_num_threads(threads)
    training = manifest.training
    model = LanguageModel(manifest.model)
    model.load(weights)
    shared = model.torch_weights()  # the parameters' memory
    nodes = [DgcNode(len(streams), clip_norm=training.clip_norm) for _ in streams]
    uploads = nbytes = 0
    rates = [part.learning_rate for part in passes for _ in range(part.epochs)]
    for epoch, rate in enumerate(rates):
        states = [model.zero_state(training.minibatch) for _ in streams]
        total, tokens = 0.0, 0
        layouts = [windows(stream, training.minibatch, training.bptt) for stream in streams]
        for step in zip(*layouts, strict=False):  # the longest streams' last window has nobody to go with
            sent = []
            for place, window in enumerate(step):
                loss, states[place] = _gradients(model, window, states[place])
                gradients = {name: _gradient(parameter) for name, parameter in model.named_parameters()}
                sent.append(nodes[place].compress(gradients, sparsity(epoch)))
                total += loss * training.minibatch
                tokens += window.predictions
            apply(shared, sent, rate)
            uploads += len(sent)
            nbytes += sum(part.nbytes for message in sent for part in message.values())
        if progress is not None:
            progress(epoch + 1, total / tokens)
    return model.weights(), uploads, nbytes


def _gradients(model: LanguageModel, window: Window, state: RecurrentState) -> tuple[float, RecurrentState]:
    """Leave the window's gradients in the parameters; its loss, summed over time, the mean over the minibatch."""
    model.zero_grad()
    logits, after = model(torch.from_numpy(window.tokens), state)
    targets = torch.from_numpy(window.targets)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    loss = loss / window.targets.shape[1]
    loss.backward()
    return float(loss.detach()), tuple(part.detach() for part in after)


def _gradient(parameter: torch.nn.Parameter) -> Array:
    assert parameter.grad is not None
    return parameter.grad.numpy()
