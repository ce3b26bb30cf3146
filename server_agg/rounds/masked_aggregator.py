"""The kind of a masked round: updates that say nothing by themselves, and the aggregation of their sum."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked import FORMAT
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.strategy import Aggregation, RoundContext
from phonograd.server_agg.masked.mean import MaskedMean
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.masked.stages import RequestKind
from phonograd.server_agg.refusals import OtherMessageError, RoundFailedError
from phonograd.server_agg.rounds.aggregator import Arrival, OpenedUpdate, RoundAggregator, Taken
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import PUBLISHED, Ending, Round, Update


class MaskedUpdate:
    """A masked update's metadata: of which round and base model. Raises UpdateError for another file."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with TensorFile(path) as file:
                about = file.metadata
        except WeightsError as error:
            raise UpdateError(str(error)) from error
        number = about.get("round", "")
        if about.get("format") != FORMAT or not (number.isascii() and number.isdigit() and len(number) <= 18):
            raise UpdateError(
                f"{path}: format {FORMAT} of a round expected, found {about.get('format', 'none')[:40]!r}; "
                "this round takes masked updates alone"
            )
        self.info = UpdateInfo(about.get("base_sha256", ""), int(number), 0, "masked", 0)


class MaskedAggregator(RoundAggregator):
    """Sums the masked updates of round `row`. Nobody can learn anything of them if it fails."""

    stages: MaskedRound
    after_failure = "discarded", "masked_round_failed"

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger, retry_seconds: float):
        super().__init__(row, folder, ledger)
        try:
            self.stages = MaskedRound(row, not self.settings.private, self.base, ledger, retry_seconds)
        except BaseException:
            self.close()
            raise

    def find_ending(self, opened: OpenRound, now: float) -> Ending | None:
        """Return "deadline" once all is there for the sum."""
        del opened, now
        return "deadline" if self.stages.over else None

    @property
    def aggregation(self) -> Aggregation:
        """Added again if it was used for a model that could not be written."""
        if isinstance(self._aggregation, MaskedMean) and self._aggregation.used:
            self.invalidate()
        return super().aggregation

    def _open(self, path: Path) -> AbstractContextManager[OpenedUpdate]:
        return nullcontext(MaskedUpdate(path))

    def _measure_file(self, *_: object) -> None:
        """No file of it can be measured."""

    def _take(self, update: Arrival) -> Taken:
        aggregation = self.aggregation
        self._add_stored(aggregation, None, update.file.path)
        self._aggregation = None
        return Taken(aggregation, update, 1, {})  # only the sum of weights is known, and that at the end

    def take_back(self) -> None:
        """No file can be subtracted from the sum: it is added up again."""

    def _begin(self, context: RoundContext) -> Aggregation:
        return MaskedMean(self.settings, self.base, self.row.base_sha256, context, lambda: self.stages.facts)

    def _add_stored(self, aggregation: Aggregation, row: Update | None, path: Path) -> None:
        del row
        assert isinstance(aggregation, MaskedMean)
        aggregation.add_file(path)


def answer_of_another(ledger: Ledger, kind: RequestKind, number: int, opened: int) -> Mapping[str, Any]:
    """The answer to a message for a round that is not open. Raises OtherMessageError, RoundFailedError."""
    with ledger.reading() as session:
        row = session.get(Round, number)
    if row is None:
        raise OtherMessageError(f"round {number}: not here; round {opened} is open")
    if kind == "answer" and row.ending in PUBLISHED:
        return {}  # it was taken, or came too late: the phone has done its part
    why = f"failed: {row.reason}" if row.ending == "failed" else f"over ({row.ending})"
    raise RoundFailedError(f"round {number}: {why}; take part in round {opened}, or with its next model once sent")
