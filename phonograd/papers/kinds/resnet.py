"""ResNet-110 on four nodes: the bytes of its rounds, and that the recipe trains (paper P, Table 6)."""

import torch

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.papers.few_nodes.resnet import average, resnet, train, upload_bytes
from phonograd.papers.run import Context, Outcome

_SIZE = 32  # pixels a side


class Settings(Record, frozen=True):
    """blocks: of each width, 18 in ResNet-110; uploads: of the whole training; nodes train `steps` steps of `minibatch`
    random images each.
    """

    blocks: Positive
    uploads: Positive
    nodes: Positive
    minibatch: Positive
    steps: Positive
    learning_rate: float


def run(settings: Settings, context: Context) -> Outcome:
    """Count the bytes; train the nodes for a few steps and average them."""
    torch.manual_seed(context.seed)
    torch.set_num_threads(context.workers)
    model = resnet(settings.blocks)
    first = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained, losses = [], []
    for node in range(settings.nodes):
        context.progress(node, settings.nodes, f"node {node + 1}")
        images = torch.randn(settings.minibatch, 3, _SIZE, _SIZE)
        labels = torch.randint(0, 10, (settings.minibatch,))
        model.load_state_dict(first)
        losses.append(train(model, [(images, labels)] * settings.steps, settings.learning_rate))
        trained.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    model.load_state_dict(average(trained))
    figures = {"uploads": settings.uploads, "MiB up": settings.uploads * upload_bytes(model) / 2**20}
    falls = {
        "first loss on random images": sum(loss[0] for loss in losses) / len(losses),
        "last loss on random images": sum(loss[-1] for loss in losses) / len(losses),
    }
    return Outcome({"averaging": figures | falls}, {"steps of each node": settings.steps})
