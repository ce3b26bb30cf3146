"""Flower's FedAvg: replies as its grid hands them over, one message for each phone, then its own aggregate_train.

Runs in an environment of its own, as Flower pins the server libraries that phonograd uses too.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from phonograd.bench.aggregator import AggregationJob
from phonograd.bench.environment import version_of
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors

WEIGHT = "num-examples"  # FedAvg's default weighted_by_key


class FlowerAggregator:
    """Loading is what receiving leaves in memory: every phone's arrays, serialised as Flower keeps them."""

    def __init__(self, job: AggregationJob):
        # A message asks in whose name it is made; any numbers do, as none is sent.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._replies = [_reply(phone, path, weight) for phone, (path, weight) in enumerate(job.updates)]
        self.versions: Mapping[str, str] = version_of("flwr", "numpy")

    def aggregate(self) -> Callable[[Path], object]:
        """FedAvg over all replies."""
        average, _ = FedAvg().aggregate_train(1, self._replies)
        return lambda path: save_tensors(path, {name: array.numpy() for name, array in average.items()})


def _reply(phone: int, path: str, weight: int) -> Any:
    arrays = ArrayRecord({name: Array(array) for name, array in load_tensors(Path(path)).items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({WEIGHT: weight})})
    return Message(content=content, dst_node_id=phone, message_type="train")


def load(job: AggregationJob) -> FlowerAggregator:
    """See phonograd.bench.aggregator."""
    return FlowerAggregator(job)
