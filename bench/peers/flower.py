"""Flower's FedAvg: one reply message for each phone, as Flower's grid delivers them, then its own aggregate_train.

It runs in an environment of its own, because Flower pins server libraries that phonograd uses too.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from phonograd.bench.environment import version_of
from phonograd.bench.worker import AggregationJob
from phonograd.device_runtime.formats.tensor_file import CHECKSUM, load_tensors, save_tensors

WEIGHT = "num-examples"  # FedAvg's default weighted_by_key


class FlowerAggregator:
    """Loading builds what Flower has in memory after receiving: every phone's arrays, serialised."""

    def __init__(self, job: AggregationJob):
        # A message needs a run, node and task; any ids do, because none is sent.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._replies = [_reply(phone, path, weight) for phone, (path, weight) in enumerate(job.updates)]
        self.versions: Mapping[str, str] = version_of("flwr", "numpy")

    def aggregate(self) -> Callable[[Path], object]:
        """FedAvg over all replies."""
        average, _ = FedAvg().aggregate_train(1, self._replies)
        return lambda path: save_tensors(path, {name: array.numpy() for name, array in average.items()})


def _reply(phone: int, path: str, weight: int) -> Any:
    arrays = ArrayRecord({name: Array(array) for name, array in load_tensors(Path(path)).items() if name != CHECKSUM})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({WEIGHT: weight})})
    return Message(content=content, dst_node_id=phone, message_type="train")


load = FlowerAggregator
