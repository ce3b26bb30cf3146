"""The coordinator: opens rounds, takes updates in, ends rounds, and finds its place again after a crash.

An update counts once its bytes and its ledger row are on disk. The life of a round: `announce` makes room for an
update, `settle` decides on it when its bytes are here, and after each accepted one and at each `tick` the round ends if
it is complete; then the next one is open.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError, UpdateError
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.server_agg.rounds import admission, failed_rounds, log_events, rollback, startup, upload_creation
from phonograd.server_agg.rounds.completion import end_if_complete
from phonograd.server_agg.rounds.current_round import CurrentRound
from phonograd.server_agg.rounds.ingestion import UpdateIngester
from phonograd.server_agg.rounds.recovery import recover
from phonograd.server_agg.rounds.responses import OpenRound, Receipt, receipt_of
from phonograd.server_agg.rounds.uploads import UploadMetadata, UploadRecord, UploadStore
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder


class Coordinator:
    """Runs the rounds of one state folder; thread-safe, one update is settled at a time.

    The first time, the model of `artifacts` is copied in and round 1 opens; later starts continue from the state.
    A start that fails leaves no new folder behind. Raises ArtifactsError for a state that began with other artifacts,
    StorageError when the disk or the ledger refuses, WeightsError for a model that is damaged or not float32.
    """

    def __init__(
        self, artifacts: Artifacts, state: Path, settings: ServerSettings, clock: Callable[[], float] | None = None
    ):
        self.settings = settings
        self.folder = StateFolder(state)
        try:
            self.ledger = Ledger(self.folder.ledger) if clock is None else Ledger(self.folder.ledger, clock=clock)
        except BaseException:
            self.folder.close(keep=False)
            raise
        self.uploads = UploadStore(self.ledger, self.folder, settings.expire_seconds)
        self._lock = threading.Lock()  # of the round: who changes it, or its aggregation, holds this
        self._round = CurrentRound(self.folder, self.ledger, settings)
        self._ingester = UpdateIngester(self._round, self.uploads)
        try:
            startup.open_state(self.folder, self.ledger, artifacts, settings)
            self._round.load()
            recover(self._round, self.uploads, self.ingest)
        except BaseException:
            self._close(keep=False)
            raise

    def close(self) -> None:
        """Wait for the update that is being settled, then close all files."""
        self._close(keep=True)

    def _close(self, keep: bool) -> None:
        with self._lock:
            self._round.close()
            self.ledger.close()
            self.folder.close(keep)

    @property
    def security(self) -> SecuritySettings:
        """The settings' own, and with tokens for everyone where phones are drawn: else anyone could speak for them.

        That is a private strategy's, and a private round's that goes on under the settings it began with.
        """
        if self.settings.strategy.private or self.current.private:
            return replace(self.settings.security, auth="tokens")
        return self.settings.security

    @property
    def current(self) -> OpenRound:
        """The open round; a snapshot, read without waiting for the update that is being settled."""
        return self._round.open_round

    def participation(self, phone: str) -> str | None:
        """Why `phone` has no place in the open round; None if it has one. Raises nothing but StorageError."""
        admission_state = self._round.admission_state
        try:
            with self.ledger.reading() as session:
                admission.check_duplicate(session, admission_state, phone)
                admission.check_phone(session, admission_state, phone)
        except UpdateError as error:
            return str(error)
        return None

    def create_upload(self, metadata: UploadMetadata) -> UploadRecord:
        """Make room for an update that `announced.phone` is about to send.

        A resumable one that this phone has announced before is resumed, or, if it counts already, found complete;
        announcing another gives the earlier up. Raises what `settle` would (NotSelectedError, RoundFullError,
        DuplicatePhoneError, LateUpdateError, StaleUpdateError), as far as the announcement shows it, and StorageError.
        """
        return upload_creation.create_upload(self._round, self.uploads, metadata)

    def ingest(self, identifier: str, sha256: str, nbytes: int) -> Receipt:
        """Decide on an upload whose bytes are all in incoming/ and hash to `sha256`; `nbytes`: of its last request.

        The same phone with the same bytes again gets its receipt again. Raises MalformedUpdateError,
        InvalidUpdateError, UploadOverError (given up meanwhile) or what `announce` raises; then the upload is at its
        end, its row says why, and nothing else has changed. Raises StorageError when the disk refuses; then the update
        does not count, and its bytes stay.
        """
        with self._lock:
            end_if_complete(self._round)  # a round whose closing failed takes nobody else in
            if self._ingester.ingest(identifier, sha256, nbytes):
                self._end_or_try_again()
            receipt = self._receipt(identifier)
            self.folder.upload(identifier).unlink(missing_ok=True)
            return receipt

    def receipt(self, upload: UploadRecord) -> Receipt:
        """The receipt of an accepted upload, or of one that was sent again."""
        return self._receipt(upload.id)

    def _receipt(self, identifier: str) -> Receipt:
        with self.ledger.reading() as session:
            return receipt_of(session, identifier)

    def tick(self) -> None:
        """What time brings: deadlines, uploads given up, traffic written down. Call it every second or so."""
        self.ledger.flush()
        for upload in self.uploads.expire():
            log_events.upload_expired(upload)
        with self._lock:
            if not self._round.closed:
                self._round.sample_if_waiting()
                self._end_or_try_again()

    def _end_or_try_again(self) -> None:
        """End the round if it is complete. Where the disk refuses, the next tick or update tries again."""
        try:
            end_if_complete(self._round)
        except StorageError as error:
            log_events.round_not_closed(self.current.round, error)

    def rollback(self, number: int) -> OpenRound:
        """Go back to the model that round `number` ended with (0: the exported one); the open round begins anew on it.

        The updates of the open round are discarded; rounds since `number` stay in the ledger, marked. Raises
        UnknownRoundError if there is no such round or its model is not kept.
        """
        with self._lock:
            self._round.check_running()
            rollback.roll_back(self.folder, self.ledger, self.settings, number)
            self._round.load()
            log_events.rolled_back(number, self.current.round, self.current.base_sha256)
            return self.current

    def discard(self, number: int) -> int:
        """Delete the updates that are kept of round `number`, which failed; how many. Raises UnknownRoundError."""
        with self._lock:
            self._round.check_running()
            return failed_rounds.discard(number, self.folder, self.ledger)
