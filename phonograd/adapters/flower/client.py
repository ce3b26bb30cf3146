"""A Flower node's training: a phone's, which answers with an update."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from flwr.app import Message, MetricRecord, RecordDict
from msgspec.structs import replace

import phonograd
from phonograd.adapters.flower.files import (
    ARRAYS,
    CONFIG,
    METRICS,
    MODEL,
    ROUND,
    TOKENS,
    UPDATE,
    bytes_in,
    file_record,
    save,
)
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.manifest import Artifacts


def train_reply(
    message: Message,
    artifacts: Artifacts | str | Path,
    text: str | Path | Sequence[str | bytes],
    settings: phonograd.TrainSettings | None = None,
    rehearsal: str | Path | Sequence[str | bytes] | None = None,
) -> Message:
    """Train the model that an UpdateStrategy sent on a user's text, as `phonograd.train` does. For `ClientApp.train`.

    The reply has the update's bytes, and as metrics the loss of the last step in nats a token and the number of tokens.
    Raises what `phonograd.train` raises, which Flower reports to the server, and UsageError for settings that the round
    decides.
    """
    chosen, plain = settings or phonograd.TrainSettings(), phonograd.TrainSettings()
    for name in ("weights", "round_number"):
        if getattr(chosen, name) != getattr(plain, name):
            raise UsageError(f"{name}: not expected, because the message has it")
    with tempfile.TemporaryDirectory(prefix="phonograd-flower-") as place:
        weights, update = Path(place) / MODEL, Path(place) / UPDATE
        save(bytes_in(MODEL, message), weights)
        number = int(message.content[CONFIG][ROUND])
        here = replace(chosen, weights=weights, round_number=number)
        trained = phonograd.train(artifacts, text, here, rehearsal=rehearsal, update=update)
        metrics = MetricRecord({"loss": trained.report.losses[-1], TOKENS: trained.report.tokens})
        content = RecordDict({ARRAYS: file_record(UPDATE, update), METRICS: metrics})
    return Message(content, reply_to=message)
