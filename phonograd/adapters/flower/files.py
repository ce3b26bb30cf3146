"""Files in Flower's messages: a model on its way down, an update on its way up, byte for byte."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from phonograd.device_runtime.base.errors import StorageError, UpdateError
from phonograd.device_runtime.base.files import storage_errors

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"  # names of records, as Flower's own strategies call them
MODEL, UPDATE = "weights.safetensors", "update.safetensors"  # names of arrays
ROUND = "server-round"  # in CONFIG
TOKENS = "num-examples"  # in METRICS: what the updates of Flower's own strategies are weighted by
STYPE = "bytes"  # how an array's data are made: they are the file's bytes


def file_record(name: str, path: Path) -> ArrayRecord:
    """A file's bytes as a record of one array [bytes]. Raises StorageError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    return ArrayRecord({name: Array(str(np.dtype(np.uint8)), (len(data),), STYPE, data)})


def bytes_in(name: str, message: Message) -> bytes:
    """The bytes of the file that a message brings. Raises UpdateError for an error, or a message without that file."""
    if message.has_error():
        raise UpdateError(f"the node answered with an error: {message.error.reason}")
    content: RecordDict = message.content
    record = content.get(ARRAYS)  # not `content.array_records`: a cycle of references would keep the bytes
    array = record.get(name) if isinstance(record, ArrayRecord) else None
    if array is None or array.stype != STYPE:
        raise UpdateError(f"no file {name} in the message; expected one from phonograd.adapters.flower")
    data: bytes = array.data
    return data


def save(data: bytes, path: Path) -> None:
    """Write a received file. Raises StorageError."""
    with storage_errors(path):
        path.write_bytes(data)
