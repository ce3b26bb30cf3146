"""A round's nodes as one batch in torch, on a GPU if there is one: for rounds that would take the engine hours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.export.perceptron import PerceptronConfig
from phonograd.papers.images.dataset import Images
from phonograd.papers.images.pretrain import DEVICE, Perceptron, require_finite


def together(
    config: PerceptronConfig,
    minibatch: int,
    base: Path,
    work: Path,
    number: int,
    nodes: Mapping[str, Images],
    rate: float,
) -> Path:
    """A round as `node.in_turn` has it, for nodes of equally many images; only dropout draws otherwise.

    Raises as `node.in_turn`.
    """
    sha256 = sha256_of_file(base)
    seeds = [seed_of(sha256, number, name) for name in nodes]
    torch.manual_seed(seeds[0])  # of dropout
    model = Perceptron(config).to(DEVICE)
    weights = {  # [K, ...], of K nodes
        name: torch.from_numpy(values).to(DEVICE).repeat(len(nodes), *[1] * values.ndim).requires_grad_()
        for name, values in load_tensors(base).items()
    }
    shown = [
        images.take(np.random.default_rng(seed).permutation(len(images)))
        for seed, images in zip(seeds, nodes.values(), strict=True)
    ]
    pixels = torch.from_numpy(np.stack([images.pixels for images in shown])).to(DEVICE)  # [K, N, P]
    labels = torch.from_numpy(np.stack([images.labels for images in shown])).to(DEVICE)  # [K, N]
    logits_of = torch.vmap(lambda of, x: torch.func.functional_call(model, of, (x,)), randomness="different")
    for step in range(shown[0].minibatches(minibatch)):
        part = slice(step * minibatch, (step + 1) * minibatch)
        logits = logits_of(weights, pixels[:, part]).flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, labels[:, part].flatten(), reduction="sum") / minibatch
        _descend(weights, torch.autograd.grad(loss, list(weights.values())), rate, config.clip_norm)
    require_finite(loss, rate)
    trained = work / f"{number}.safetensors"
    save_tensors(trained, {name: values.detach().mean(0).cpu().numpy() for name, values in weights.items()})
    return trained


def _descend(weights: Mapping[str, Tensor], gradients: Sequence[Tensor], rate: float, clip_norm: float | None) -> None:
    """A step of plain SGD for each of K nodes, whose gradients are clipped each by themselves."""
    scale = torch.full((len(gradients[0]),), rate, device=DEVICE)
    if clip_norm is not None:
        norms = torch.stack([gradient.flatten(1).norm(dim=1) for gradient in gradients]).norm(dim=0)
        scale *= (clip_norm / norms).clamp(max=1)
    with torch.no_grad():
        for values, gradient in zip(weights.values(), gradients, strict=True):
            values.sub_(gradient * scale.view(-1, *[1] * (gradient.ndim - 1)))
