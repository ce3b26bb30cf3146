"""ResNet-110 (He et al. 2016) on four nodes: the bytes of its rounds, and that the recipe trains (paper P, Table 6).

In torch, as a recipe for machines with a GPU and CIFAR-10: the native engine has no convolution.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.papers.run import Context, Outcome

_SIZE = 32  # pixels a side
WIDTHS = (16, 32, 64)
# Table 6: minibatch 128, momentum 0.9, weight decay 0.0002, learning rate 0.1 falling to 0.01.
MOMENTUM, WEIGHT_DECAY = 0.9, 0.0002


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


def _normalised(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions and a shortcut. Nothing rectifies the branch before the addition; the sum is rectified."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = _normalised(inputs, outputs, 3, stride)
        self.second = _normalised(outputs, outputs, 3, 1)
        self.shortcut = nn.Identity() if inputs == outputs else _normalised(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, S, S] to [N, outputs, S / stride, S / stride]."""
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def resnet(blocks: int = 18, classes: int = 10) -> nn.Sequential:
    """A network of 6 x blocks + 2 layers: 110 by default. [N, 3, 32, 32] float32 to logits [N, classes]."""
    layers: list[nn.Module] = [_normalised(3, WIDTHS[0], 3, 1), nn.ReLU()]
    inputs = WIDTHS[0]
    for width in WIDTHS:
        for _ in range(blocks):
            layers.append(Block(inputs, width, 1 if inputs == width else 2))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def upload_bytes(model: nn.Module) -> int:
    """Bytes of an upload: weights and running statistics of the normalisations, float32."""
    floats = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point()]
    return sum(4 * tensor.numel() for tensor in floats)


def train(model: nn.Module, minibatches: Iterable[tuple[Tensor, Tensor]], learning_rate: float) -> list[float]:
    """A pass over minibatches of images and labels; the loss of each, nats an image."""
    optimizer = torch.optim.SGD(model.parameters(), learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    model.train()
    losses = []
    for images, labels in minibatches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def average(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The plain mean of the nodes' weights and running statistics; counters are the first node's."""
    return {
        name: torch.stack([state[name] for state in models]).mean(0) if tensor.is_floating_point() else tensor
        for name, tensor in models[0].items()
    }
