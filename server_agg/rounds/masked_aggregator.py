"""The updates of a masked round: files that say nothing by themselves, and the aggregation of their sum."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked import FORMAT
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateInfo
from phonograd.server_agg.aggregation.strategies import Aggregation, Measures, RoundContext
from phonograd.server_agg.masked.mean import MaskedMean
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.rounds.aggregator import OpenedUpdate, RoundAggregator
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round, Update

CODEC = "masked"


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
        self.info = UpdateInfo(about.get("base_sha256", ""), int(number), 0, CODEC, 0)


class MaskedAggregator(RoundAggregator):
    """Sums the masked updates of round `row`."""

    masked: MaskedRound

    def __init__(self, row: Round, folder: StateFolder, ledger: Ledger, retry_seconds: float):
        super().__init__(row, folder, ledger)
        try:
            self.masked = MaskedRound(row, not self.settings.private, self.base, ledger, retry_seconds)
        except BaseException:
            self.close()
            raise

    @property
    def aggregation(self) -> Aggregation:
        """Added again if it was used for a model that could not be written."""
        if isinstance(self._aggregation, MaskedMean) and self._aggregation.used:
            self.invalidate()
        return super().aggregation

    def opened(self, path: Path) -> AbstractContextManager[OpenedUpdate]:
        """A masked update."""
        return nullcontext(MaskedUpdate(path))

    def weight(self, info: UpdateInfo) -> int:
        """Only the sum of weights is known, and that at the end."""
        del info
        return 1

    def take(self, update: OpenedUpdate, ahead: DecodedUpdate | None, origin: str | None, weight: int) -> Measures:
        """Check and add it."""
        del ahead, origin, weight
        aggregation = self.aggregation
        assert isinstance(aggregation, MaskedMean)
        aggregation.add_file(update.path)
        self._aggregation, self._taken = None, aggregation
        return {}

    def _begin(self, context: RoundContext) -> Aggregation:
        return MaskedMean(self.settings, self.base, self.row.base_sha256, context, lambda: self.masked.facts)

    def _add_stored(self, aggregation: Aggregation, row: Update, path: Path) -> None:
        del row
        assert isinstance(aggregation, MaskedMean)
        aggregation.add_file(path)
