"""The round keeper: takes updates in, folds them, closes rounds, and finds its place again after a crash.

An update counts once its bytes and its ledger row are on disk. The fold itself lives in memory only: after a restart
the stored updates of the open round are folded again, and since the fold does not depend on order the next model is
the same to the bit.
"""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from device_runtime.codecs import CODECS
from device_runtime.errors import StorageError, UpdateError, WeightsError
from device_runtime.files import sha256_of_file
from device_runtime.manifest import Artifacts
from device_runtime.tensor_file import TensorFile, WrittenFile, write_tensor_file
from device_runtime.update_file import UpdateFile, UpdateInfo
from server_agg.fold import Fold
from server_agg.refusals import DuplicatePhoneError, InvalidUpdateError, MalformedUpdateError, StaleUpdateError
from server_agg.rounds.opening import expect_open_round, open_state
from server_agg.settings import ServerSettings
from server_agg.storage.ledger import Ledger, Transfer
from server_agg.storage.state_folder import StateFolder
from server_agg.storage.tables import Upload
from server_agg.strategies import Strategy, strategy_named

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenRound:
    """The open round as a phone needs to see it; `model_bytes` is the size of the base model's file."""

    round: int
    base_sha256: str
    model_bytes: int
    clients_per_round: int
    weighting: str
    accepted: int
    codecs: tuple[str, ...] = tuple(CODECS)


@dataclass(frozen=True)
class Receipt:
    """The answer to an accepted update. `model_sha256`: the round's result, once the round is closed."""

    round: int
    phone: str
    accepted: int
    clients_per_round: int
    round_closed: bool
    model_sha256: str | None
    bytes: int


class RoundKeeper:
    """Keeps the rounds of one state folder; thread-safe, one update at a time.

    The first time, the model of `artifacts` is copied in and round 1 opens; later, the state goes on where it was.
    Raises ArtifactsError for a state that began with other artifacts, StorageError when the disk or the ledger
    refuses, WeightsError for a model that is damaged or not float32.
    """

    def __init__(self, artifacts: Artifacts, state: Path, settings: ServerSettings):
        self.settings = settings
        self.folder = StateFolder(state)
        self._lock = threading.Lock()
        self._base: TensorFile | None = None
        try:
            self.ledger = Ledger(self.folder.ledger)
        except BaseException:
            self.folder.close()
            raise
        try:
            self._open(artifacts)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Wait for the update in hand, then let go of all files."""
        with self._lock:
            if self._base is not None:
                self._base.close()
                self._base = None
            self.ledger.close()
            self.folder.close()

    @property
    def current(self) -> OpenRound:
        """The open round; a snapshot, read without waiting for the update in hand."""
        return self._current

    def accept(self, path: Path, phone: str, sha256: str, transfer: Transfer) -> Receipt:
        """Take in the update at `path` (in the state's incoming/, whose bytes hash to `sha256`), moving it away.

        The same phone with the same bytes again gets its receipt again. Raises MalformedUpdateError, StaleUpdateError,
        DuplicatePhoneError, InvalidUpdateError; then nothing has changed (write it down with `refuse`). Raises
        StorageError when the disk refuses; then the update does not count.
        """
        with self._lock:
            self._open_base()
            self._close_if_full()
            try:
                update = UpdateFile(path)
            except (WeightsError, UpdateError) as error:
                raise MalformedUpdateError(_without_path(error, path)) from error
            with update:
                if receipt := self._receipt_again(update.info, phone, sha256, transfer):
                    return receipt
                self._take(update, phone, sha256, transfer)
            taken = self._current
            log.info("round %d: %s accepted, %d of %d", taken.round, phone, taken.accepted, taken.clients_per_round)
            self._try_to_close()
            return self._receipt(taken.round, phone, transfer)

    def refuse(self, transfer: Transfer, phone: str | None, reason: str) -> None:
        """Write down an upload that came to nothing, with the bytes that arrived."""
        self.ledger.add_upload(self.current.round, "rejected", transfer, phone=phone, reason=reason)

    def sent(self, sha256: str, phone: str | None, nbytes: int) -> None:
        """Write down that `nbytes` of a model were sent."""
        self.ledger.add_download(self.current.round, sha256, phone, nbytes)

    # All below runs under the lock, or before anybody else holds the keeper.

    def _open(self, artifacts: Artifacts) -> None:
        open_state(self.folder, self.ledger, artifacts, self.settings)
        self._stand_at_open_round()
        self._close_if_full()
        self._folded()

    def _stand_at_open_round(self) -> None:
        self._round = expect_open_round(self.ledger)
        self._fold: Fold | None = None
        if self._base is not None:
            self._base.close()
        self._base = TensorFile(self.folder.model(self._round.base_sha256))
        self.folder.keep_updates({str(upload.sha256) for upload in self.ledger.accepted(self._round.number)})
        kept = {model.sha256 for model in self.ledger.models()[-self.settings.models_kept :]}
        self.folder.keep_models(kept | {self._round.base_sha256})
        self._publish()

    def _open_base(self) -> TensorFile:
        if self._base is None:
            raise StorageError(f"{self.folder.root}: the server is stopping; send again when it is back")
        return self._base

    def _publish(self) -> None:
        base = self.ledger.model(self._round.base_sha256)
        self._current = OpenRound(
            round=self._round.number,
            base_sha256=self._round.base_sha256,
            model_bytes=base.bytes if base else 0,
            clients_per_round=self._round.clients_per_round,
            weighting=self._round.weighting,
            accepted=self.ledger.count_accepted(self._round.number),
        )

    def _folded(self) -> Fold:
        """The fold of the accepted updates; made from the stored ones where there is none."""
        if self._fold is None:
            fold = Fold(self._open_base(), self._round.base_sha256)
            for upload in self.ledger.accepted(self._round.number):
                self._fold_stored(fold, upload)
            self._fold = fold
        return self._fold

    def _fold_stored(self, fold: Fold, upload: Upload) -> None:
        path = self.folder.update(str(upload.sha256))
        try:
            if (found := sha256_of_file(path)) != upload.sha256:
                raise StorageError(f"{path}: altered, its SHA-256 is {found}; restore the state folder")
            with UpdateFile(path) as update:
                fold.accumulate(update, upload.weight or 1)
        except OSError as error:
            raise StorageError(f"{path}: an accepted update cannot be read: {error}; restore it") from error

    def _receipt_again(self, info: UpdateInfo, phone: str, sha256: str, transfer: Transfer) -> Receipt | None:
        """The receipt of an update that this phone sent before, in the open round or one that is closed by now."""
        earlier = [upload for upload in self.ledger.accepted(info.round) if upload.phone == phone]
        if not earlier:
            return None
        if earlier[0].sha256 != sha256:
            raise DuplicatePhoneError(
                f"phone {phone}: one update a round accepted, found another in round {info.round}; "
                "wait for the next round"
            )
        self.ledger.add_upload(
            info.round, "repeated", transfer, phone=phone, sha256=sha256, codec=info.codec, tokens=info.tokens
        )
        log.info("round %d: %s sent the same update again; not counted twice", info.round, phone)
        return self._receipt(info.round, phone, transfer)

    def _take(self, update: UpdateFile, phone: str, sha256: str, transfer: Transfer) -> None:
        """Check, fold, store, write down: in this order, so that a refusal leaves nothing behind."""
        info = update.info
        if (info.round, info.base_sha256) != (self._round.number, self._round.base_sha256):
            raise StaleUpdateError(
                f"the update is of round {info.round} and model {info.base_sha256[:12]}…, "
                f"expected round {self._round.number} and model {self._round.base_sha256[:12]}…; "
                "fetch the current model and train again"
            )
        try:
            update.check(self._open_base(), self._round.base_sha256)
            weight = self._strategy().weight(info)
        except (WeightsError, UpdateError) as error:
            raise InvalidUpdateError(_without_path(error, update.path)) from error
        fold = self._folded()
        self._fold = None  # until the update counts: whatever fails below, the fold is made anew from disk
        try:
            fold.accumulate(update, weight)
        except WeightsError as error:
            raise InvalidUpdateError(_without_path(error, update.path)) from error
        self.folder.move_in(update.path, self.folder.update(sha256))
        self.ledger.add_upload(
            info.round,
            "accepted",
            transfer,
            phone=phone,
            sha256=sha256,
            codec=info.codec,
            tokens=info.tokens,
            weight=weight,
        )
        self._fold = fold
        self._publish()

    def _strategy(self) -> Strategy:
        return strategy_named(self.settings.strategy, self._round.weighting, self.settings.max_tokens)

    def _receipt(self, number: int, phone: str, transfer: Transfer) -> Receipt:
        round_ = self.ledger.round_numbered(number) or self._round
        return Receipt(
            round=round_.number,
            phone=phone,
            accepted=self.ledger.count_accepted(round_.number),
            clients_per_round=round_.clients_per_round,
            round_closed=round_.closed_at is not None,
            model_sha256=round_.result_sha256,
            bytes=transfer.body_bytes,
        )

    def _try_to_close(self) -> None:
        """Close the round if it is full. A disk that refuses costs the accepted update nothing: it is tried again."""
        try:
            self._close_if_full()
        except StorageError as error:
            log.error(
                "round %d is full and could not be closed, next upload tries again: %s", self._round.number, error
            )

    def _close_if_full(self) -> None:
        if self._current.accepted < self._round.clients_per_round:
            return
        closed = self._round
        written = self._write_average()
        self.ledger.close_round(
            closed.number,
            self.ledger.new_model(written.sha256, closed.number, closed.base_sha256, written.nbytes),
            self.ledger.new_round(
                closed.number + 1, written.sha256, self.settings.clients_per_round, self.settings.weighting
            ),
        )
        self._stand_at_open_round()
        log.info("round %d closed: model %s, %d bytes", closed.number, written.sha256[:12], written.nbytes)

    def _write_average(self) -> WrittenFile:
        # The metadata hold no time: the same updates give the same file, to the bit.
        metadata = {"round": str(self._round.number), "parent_sha256": self._round.base_sha256}
        draft = self.folder.new_incoming()
        try:
            written = write_tensor_file(draft, self._open_base().specs.values(), self._folded().finish(), metadata)
            self.folder.move_in(draft, self.folder.model(written.sha256))
        finally:
            draft.unlink(missing_ok=True)
        return written


def _without_path(error: Exception, path: Path) -> str:
    """The message as a phone may read it: it knows its update, not our folders."""
    return str(error).replace(str(path), "the update")
