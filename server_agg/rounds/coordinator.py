"""The coordinator runs rounds for HTTP: it opens a folder and its ledger, holds the lock, recovers after a crash.

After each accepted update and at each `tick`, a complete round ends. What is done to a round is in `live_round`.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StorageError, UpdateError, UsageError
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.masked.stages import RequestKind
from phonograd.server_agg.refusals import RefusalError, RoundClosingError
from phonograd.server_agg.rounds import ending, partial_sums, startup
from phonograd.server_agg.rounds.aggregator import CLOSING_SECONDS
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.rounds.responses import OpenRound, Receipt, receipt_of
from phonograd.server_agg.rounds.shared_round import SharedRound
from phonograd.server_agg.rounds.slow_closing import Students
from phonograd.server_agg.rounds.uploads import ABANDONED_SECONDS, UploadMetadata, UploadRecord, UploadStore
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.stores import Store, store_at


class Coordinator:
    """Runs the rounds of one state folder; thread-safe. Updates are measured side by side, and counted one at a time.

    The first start copies the model of `artifacts` into the folder and opens round 1; later starts continue from the
    state. A failed start removes a folder that it created. slow_models: makes those of slow strategies; None: the
    students of strategy transfer. Raises ArtifactsError if the state was started with other artifacts, StorageError for
    errors of the disk or the ledger, WeightsError for a model that is damaged or not float32.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        state: Path,
        settings: ServerSettings,
        clock: Callable[[], float] | None = None,
        slow_models: Students | None = None,
    ):
        self.settings = settings
        self.folder = StateFolder(state, _store_of(settings))
        try:
            self.ledger = Ledger(settings.ledger or self.folder.ledger, clock=clock)
            self.folder.share_noise_keys(self.ledger)
        except BaseException:
            self.folder.close(keep=False)
            raise
        self.uploads = UploadStore(self.ledger, self.folder, settings.expire_seconds, settings.announce_seconds)
        self._next_beat = self._next_abandoned = 0.0
        self._heard: tuple[int, float | None] | None = None  # of the open round, by `beat`
        self.overdue = False  # whether the round should have ended, and the disk refused
        self._lock = threading.Lock()  # held to change the round or its aggregation
        slow_models, kind = slow_models or Students(artifacts), SharedRound if self.ledger.shared else LiveRound
        self.round = kind(self.folder, self.ledger, settings, self.uploads, self._lock, slow_models)
        try:
            with self.ledger.errors():
                startup.open_state(self.folder, self.ledger, artifacts, settings, slow_models)
                self.round.load()
                self._recover()
        except BaseException:
            self._close(keep=False)
            raise

    def close(self) -> None:
        """Wait for the update that is being ingested, stop the work on a closing round, then close all files."""
        self._close(keep=True)

    def _close(self, keep: bool) -> None:
        with self._lock:
            self.round.close()  # nothing begins any more
        self.round.slow.close()
        with self._lock:
            self.ledger.close()
            self.folder.close(keep)

    def _recover(self) -> None:
        for upload in self.uploads.recover():
            self._ingest_unattended(upload)
        with self._lock:
            self.round.sum_stored()
            self._end_or_try_again()

    def _ingest_unattended(self, upload: UploadRecord) -> bool:
        """Ingest a complete upload whose request is gone; the phone can ask for its outcome. False: it can't be now."""
        announced = {"round": upload.round, "phone": upload.phone, "bytes": upload.length}
        try:
            sha256 = self.uploads.bytes.sha256(upload.id)
            if upload.sha256 not in (None, sha256):
                log_event("upload_changed", **announced)
                self.uploads.bytes.cut(upload.id, 0)
                return True
            self.ingest(upload.id, sha256, 0)
        except RoundClosingError:
            return False  # its phone comes again
        except (StorageError, OSError) as error:  # a full disk: phones can fetch the model meanwhile
            log_event("update_not_ingested", error, round=upload.round, phone=upload.phone)
            return False
        except UpdateError as error:
            log_event("update_refused", error, **announced)
        return True

    @property
    def security(self) -> SecuritySettings:
        """The security settings. If noise is added, all need tokens, or anyone could pose as another phone.

        This holds for a private strategy, and for a private round that was opened under earlier settings.
        """
        if self.settings.strategy.private or self.current.private:
            return replace(self.settings.security, auth="tokens")
        return self.settings.security

    @property
    def current(self) -> OpenRound:
        """A snapshot of the open round; does not wait for the update that is being ingested."""
        return self.round.open_round

    @property
    def due_seconds(self) -> float:
        """How long the open round's model is being made, or the disk refuses it; 0 before the round is complete."""
        since = self.round.due_since
        return 0.0 if since is None else max(0.0, self.ledger.clock() - since)

    def participation(self, phone: str) -> UpdateError | RoundClosingError | None:
        """Why `phone` may not take part in the open round; None if it may. Raises only StorageError."""
        if self.round.surely_admits(phone):
            return None
        try:
            with self.ledger.reading() as session:
                admission = self.round.admission(session)
                admission.check_duplicate(session, phone)
                admission.check_phone(session, phone)
            self.round.aggregator.stages.check_entry(phone)
        except (UpdateError, RoundClosingError) as error:
            return error
        return None

    def create_upload(self, metadata: UploadMetadata) -> UploadRecord:
        """Start the upload of an update that `metadata.phone` is about to send.

        The phone's earlier upload of the same bytes is returned instead, finished or not; one of other bytes
        is ended. Raises the errors of `ingest` that the metadata already shows (NotSelectedError, RestingPhoneError,
        RoundFullError, DuplicatePhoneError, LateUpdateError, StaleUpdateError), which are recorded, RoundClosingError
        and StorageError.
        """
        try:
            return self.round.reserve(metadata)
        except RefusalError as error:
            self.uploads.record_refusal(metadata, self.current.round, error)
            raise

    def ingest(self, identifier: str, sha256: str, nbytes: int) -> Receipt:
        """Accept or refuse a complete upload in incoming/, whose hash is `sha256`. `nbytes`: of its last request.

        The same bytes of the same phone again return the same receipt. Raises MalformedUpdateError, InvalidUpdateError,
        UploadEndedError (it expired or was terminated meanwhile) or an error of `create_upload`: the upload has then
        ended, its row has the reason, and nothing else has changed. Raises RoundClosingError while the round closes,
        and StorageError for a disk error: the update then does not count, and its bytes stay.
        """
        self.uploads.bytes.bring(identifier)
        path = self.folder.upload(identifier)
        with self.round.aggregator.measured_ahead(path) as ahead:
            if ahead is not None:
                self.folder.sync(path)  # while another update has its turn
            return self._ingest(identifier, sha256, nbytes, ahead)

    def _ingest(self, identifier: str, sha256: str, nbytes: int, ahead: DecodedUpdate | None) -> Receipt:
        with self._lock:
            self.round.end_if_complete()  # a round that is due, whose closing failed, accepts nothing more
            receipt = self.round.ingest(identifier, sha256, nbytes, ahead)
            if receipt is not None:
                self._end_or_try_again()
            if receipt is None or receipt.round != self.current.round:
                receipt = self.receipt(identifier)
            self.uploads.bytes.delete(identifier)
            return receipt

    def masked_message(
        self, kind: RequestKind, phone: str, number: int, message: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Take a phone's message for masked round `number`, durably. Returns its answer; None: not yet, ask again.

        Raises RefusalError, with nothing changed, RoundClosingError and StorageError.
        """
        with self._lock:
            self._end_or_try_again()  # a phone that hears of a failed round finds the next one
            return self.round.take_message(kind, phone, number, message)

    def receipt(self, identifier: str) -> Receipt:
        """The receipt of an upload that was accepted or repeated."""
        with self.ledger.reading() as session:
            return receipt_of(session, identifier)

    def tick(self) -> None:
        """Periodic work: deadlines, expired uploads, traffic. Call it about every second."""
        self.ledger.flush()
        self.ledger.follow_clock()
        for upload in self.uploads.expire():
            log_event("upload_expired", upload.reason, round=upload.round, phone=upload.phone, bytes=upload.offset)
        self._ingest_abandoned()
        with self._lock:
            if not self.round.closed:
                self.round.sample_if_waiting()
                self._end_or_try_again()

    def _ingest_abandoned(self) -> None:
        """Ingest what came whole and nobody asks for; after a failure only when some time has passed."""
        if (now := self.ledger.clock()) < self._next_abandoned:
            return
        for upload in self.uploads.abandoned_uploads():
            if not self._ingest_unattended(upload):
                self._next_abandoned = now + ABANDONED_SECONDS

    def beat(self) -> bool:
        """Tell the other servers that this one lives. Returns whether a round began, or began to close, since the last
        call: `tick` has to do with it.

        Call it several times a second, in a thread of its own, if servers share the ledger. Raises StorageError.
        """
        if (now := time.monotonic()) >= self._next_beat:
            partial_sums.beat(self.ledger)
            self._next_beat = now + 1.0
        with self.ledger.reading() as session:
            row = queries.open_round(session)
        before, self._heard = self._heard, None if row is None else (row.number, row.closing_at)
        return self._heard != before

    def _end_or_try_again(self) -> None:
        """End the round if it is complete. After a disk error, the next tick or update tries again."""
        try:
            self.round.end_if_complete()
            self.overdue = False
        except StorageError as error:
            self.overdue = True
            log_event("round_not_closed", error, round=self.current.round)

    def rollback(self, number: int) -> OpenRound:
        """Roll back to the model of round `number` (0: the exported model) and open the next round on it.

        The open round's updates are discarded, and the work on a closing one is stopped; later rounds stay in the
        ledger, marked as rolled back. Raises UnknownRoundError for a round that does not exist or whose model file was
        deleted, RewoundNoiseError after noise of dp-ftrl was released, RoundClosingError while another server
        closes the round.
        """
        with self._lock, self.ledger.closing_lock() as mine:
            self.round.check_running()
            if not mine:  # it may delete the model to return to
                raise RoundClosingError(
                    f"round {self.current.round}: another server is closing it; roll back again when it is closed",
                    CLOSING_SECONDS,
                )
            ending.roll_back(self.folder, self.ledger, self.settings, number)
            self.round.slow.cancel()
            self.round.load_after_end()
            log_event("rolled_back", to_round=number, round=self.current.round, model=self.current.base_sha256)
            return self.current

    def discard(self, number: int) -> int:
        """Delete the updates kept from failed round `number`. Returns how many. Raises UnknownRoundError."""
        with self._lock:
            self.round.check_running()
            return ending.discard(number, self.folder, self.ledger)


def _store_of(settings: ServerSettings) -> Store | None:
    if settings.store is None:
        return None
    store = store_at(settings.store)
    if settings.downloads == "redirect":
        try:
            store.presigned_url("models")
        except StorageError as error:
            raise UsageError(
                f"`downloads` is 'redirect', expected a store that presigns URLs, as S3: {error}"
            ) from error
    return store
