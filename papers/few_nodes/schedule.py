"""What both ways of training across a few nodes share: the nodes' text and the learning rate of each pass."""

from dataclasses import dataclass

import numpy as np

from phonograd.device_runtime.text.vocabulary import Ids


@dataclass(frozen=True)
class Pass:
    """Some epochs on each node with one learning rate; for averaging, a round."""

    epochs: int
    learning_rate: float


def parts(stream: Ids, nodes: int) -> list[Ids]:
    """The stream [N] cut into one contiguous part for each node."""
    return np.array_split(stream, nodes)
