"""phonograd's strategy in Flower: replies are messages with an update's bytes, made when they are asked for.

It runs in an environment of its own, as the peer `flower`.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from phonograd.adapters.flower import UpdateStrategy
from phonograd.adapters.flower.files import ARRAYS, STYPE, UPDATE
from phonograd.bench.environment import version_of
from phonograd.bench.worker import AggregationJob
from phonograd.device_runtime.formats.tensor_file import TensorFile, encode_header


class StrategyAggregator:
    """phonograd's strategy in Flower; it reads each update as it is averaged."""

    def __init__(self, job: AggregationJob):
        # A message needs a run, node and task; any ids do, because none is sent.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._job = job
        self._place = tempfile.TemporaryDirectory()
        self._strategy = UpdateStrategy(job.base, self._place.name)
        self.versions: Mapping[str, str] = version_of("flwr", "phonograd")

    def aggregate(self) -> Callable[[Path], object]:
        """Fold every reply, write the model, and make the record that Flower sends next."""
        self._strategy.aggregate_train(1, self._replies())
        assert self._strategy.refusals == {1: ()}
        return lambda path: shutil.copyfile(self._strategy.model, path)

    def _replies(self) -> Iterator[Message]:
        for phone, (path, _) in enumerate(self._job.updates):
            yield _reply(phone, Path(path))


def _reply(phone: int, path: Path) -> Message:
    data = _as_sent_by(phone, path)
    content = RecordDict({ARRAYS: ArrayRecord({UPDATE: Array("uint8", (len(data),), STYPE, data)})})
    reply = Message(content=content, dst_node_id=phone, message_type="train")
    reply.metadata.__dict__["_src_node_id"] = phone
    return reply


def _as_sent_by(phone: int, path: Path) -> bytes:
    """An update's bytes with the phone's number, because the bench uses a file for several phones, and a strategy takes
    an update once.
    """
    with TensorFile(path) as update:
        header = encode_header(update.specs.values(), {**update.metadata, "phone": str(phone)})
        nbytes = sum(spec.nbytes for spec in update.specs.values())
    with path.open("rb") as file:
        file.seek(-nbytes, os.SEEK_END)
        return b"".join([header, file.read()])


load = StrategyAggregator
