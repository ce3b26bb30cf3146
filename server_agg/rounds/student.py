"""How strategy `transfer` makes a round's model: a student learns from the updates' models (paper P, eq. 4)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.server_agg.rounds.closing import SlowJob
from phonograd.server_agg.transfer import TransferSettings, transfer
from phonograd.server_agg.transfer.text import drawn_text, require_window


class Students:
    """Trains students with the distillation graph of `artifacts`; a ModelMaker."""

    def __init__(self, artifacts: Artifacts):
        self._artifacts = artifacts

    def require(self, settings: TransferSettings) -> None:
        """Raises ArtifactsError for artifacts without the graph, TextError for a text that is missing or too short."""
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
        """Train the student of a round."""
        general = _general_text(job.transfer)
        return transfer(
            self._artifacts, job.base, job.updates, job.transfer, general, job.work, out, job.metadata, progress, stop
        )


def _general_text(settings: TransferSettings) -> Sequence[bytes] | None:
    return None if settings.generated else read_messages(Path(settings.general))
