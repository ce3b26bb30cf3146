"""What both ways of training across a few nodes share: the nodes' text and the learning rate of each pass."""

import numpy as np

from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.text.vocabulary import Ids


class Pass(Record, frozen=True):
    """Some epochs on each node with one learning rate; for averaging, a round."""

    epochs: Positive
    learning_rate: float


def parts(stream: Ids, nodes: int) -> list[Ids]:
    """The stream [N] cut into one contiguous part for each node."""
    return np.array_split(stream, nodes)
