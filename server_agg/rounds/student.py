"""How strategy `transfer` makes a round's model: a student learns from the updates' models (paper P, eq. 4)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.server_agg.aggregation.strategies import ClientUpdate
from phonograd.server_agg.storage.tables import Round
from phonograd.server_agg.transfer import TransferSettings, transfer
from phonograd.server_agg.transfer.text import drawn_text, require_window


@dataclass(frozen=True)
class SlowJob:
    """What a round's model is made from. work: a folder of its own, kept until the round has ended; metadata: of the
    model's file.
    """

    round: Round
    transfer: TransferSettings
    base: Path
    updates: Sequence[ClientUpdate]
    work: Path
    metadata: Mapping[str, str]


class Students:
    """Makes the models of rounds of strategy `transfer`, with the distillation graph of `artifacts`."""

    def __init__(self, artifacts: Artifacts):
        self._artifacts = artifacts

    def require(self, settings: TransferSettings) -> None:
        """Check, at the server's start, that rounds with these settings can be closed.

        Raises ArtifactsError for artifacts without the graph, TextError for a text that is missing or too short.
        """
        artifacts, tokens = self._artifacts, settings.transfer_tokens
        artifacts.require_distill()
        general = _general_text(settings)
        if general is None:
            ids = np.zeros(tokens, np.int64)
        else:
            ids = drawn_text(general, Vocabulary.load(artifacts.path(VOCABULARY)), tokens, 0)
        training = artifacts.manifest.training
        require_window(ids, training.minibatch, training.bptt)

    def make(
        self, job: SlowJob, out: Path, progress: Callable[[int, int], None], stop: Callable[[], int]
    ) -> WrittenFile:
        """Write a round's model to `out`: minutes of work, without the coordinator's lock.

        The same job gives the same bytes, also if it goes on from the work files that an earlier call left. progress
        hears (parts done, parts in all).

        Raises StoppedError soon after `stop()` is not 0, StorageError for a disk error, which may go away.
        """
        general = _general_text(job.transfer)
        return transfer(
            self._artifacts, job.base, job.updates, job.transfer, general, job.work, out, job.metadata, progress, stop
        )


def _general_text(settings: TransferSettings) -> Sequence[bytes] | None:
    return None if settings.generated else read_messages(Path(settings.general))
