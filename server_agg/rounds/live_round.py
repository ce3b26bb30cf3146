"""The open round: one object that admits updates, sums them, and makes the next model.

An update's way, from the wire to the sum:

1. `reserve` gives its upload a place, or says why it has none; HTTP then stores its bytes (`uploads`).
2. `ingest`, once they are whole, admits it again: the round may be another one by now.
3. `_accept` measures and sums it, syncs its file and names it by its hash, writes its row, and only then keeps the sum.
4. `end_if_complete` makes the next model of the sum when the last update came, or at the deadline.
5. `record_model` ends the round and opens the next one, in one transaction.

What not all rounds have is elsewhere:

- masks: `aggregator` is a MaskedAggregator
- other servers: SharedRound
- a model that takes minutes: SlowClosing
- noise with a memory: noise_runs
- what the ledger says of the round, in memory: LoadedRound

A round whose model cannot be made fails, and the next one opens on the same base model. Its updates are kept for
inspection until `discard` deletes them.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Session

from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateInfo
from phonograd.server_agg.aggregation.next_model import make_model
from phonograd.server_agg.aggregation.own import OwnStrategyError
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.masked.stages import RequestKind
from phonograd.server_agg.refusals import (
    LateUpdateError,
    OtherMessageError,
    RefusalError,
    RoundClosingError,
    RoundFailedError,
    one_line,
)
from phonograd.server_agg.rounds import noise_runs, opening, publication
from phonograd.server_agg.rounds.admission import Admission
from phonograd.server_agg.rounds.aggregator import Arrival
from phonograd.server_agg.rounds.ending import end_round, reason_of
from phonograd.server_agg.rounds.loaded_round import LoadedRound, RoundSnapshot
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.rounds.masked_aggregator import answer_of_another
from phonograd.server_agg.rounds.responses import Receipt, receipt_in
from phonograd.server_agg.rounds.slow_closing import SlowClosing, Students
from phonograd.server_agg.rounds.uploads import (
    UploadMetadata,
    UploadRecord,
    UploadStore,
    expect_receiving,
    upload_ended_error,
)
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Ending, Model, Round


class LiveRound(LoadedRound):
    """See above. `reserve` is for any thread, the rest for the one that holds `lock`.

    due_since: since when the round should be closed, in seconds since 1970; None until then
    """

    def __init__(
        self,
        folder: StateFolder,
        ledger: Ledger,
        settings: ServerSettings,
        uploads: UploadStore,
        lock: threading.Lock,
        maker: Students,
    ):
        super().__init__(folder, ledger, settings)
        self.uploads = uploads
        self.slow = SlowClosing(folder, ledger, self.progress, lock, maker, self._end_slow)
        self.due_since: float | None = None

    def reserve(self, metadata: UploadMetadata) -> UploadRecord:
        """Return a new upload, or this phone's earlier one of the same bytes. Raises as `Coordinator.create_upload`."""
        with self.ledger.writing() as session:
            admission = self.admission(session)
            rows = queries.updates_of_phone(session, metadata.phone, "receiving", "accepted")
            for row in rows:
                if metadata.sha256 is not None and (row.sha256, row.length) == (metadata.sha256, metadata.length):
                    return self.uploads.record(session, row)
            self._admit(session, admission, metadata.phone, metadata.base_sha256, metadata.round)
            replaced = [row for row in rows if row.state == "receiving"]
            for row in replaced:
                self.uploads.end(session, row.id, "terminated", "the phone started another upload", 410)
            # Space for the uploads in progress, this one, and what the round writes: its model, and at most as much
            # again of a lossless link, or a draft and a residual; and dp-ftrl's buffers, in float64.
            files = 2 if admission.rules.publish == "rows-f32" else 3
            files += 0 if admission.run is None else 2 * len(admission.run.decays)
            space = queries.pending_bytes(session) + metadata.length + files * self.open_round.model_bytes
            self.folder.check_space(space)
            record = self.uploads.add(session, metadata, admission.row.number)
        for row in replaced:
            self.uploads.bytes.delete(row.id)
        return record

    def _admit(
        self, session: Session, admission: Admission, phone: str, base_sha256: str | None, number: int | None
    ) -> Round | None:
        """Return the closed round of a late update, else None. base_sha256: its model, if known."""
        admission.check_duplicate(session, phone)
        late = None if base_sha256 is None else admission.check_base(session, base_sha256, number)
        admission.check_phone(session, phone)
        self.aggregator.stages.check_uploader(phone)
        return late

    def ingest(self, identifier: str, sha256: str, nbytes: int, ahead: DecodedUpdate | None = None) -> Receipt | None:
        """Accept or refuse a complete upload. Its receipt; None for an update that was accepted before, in any round.

        ahead: it, measured and made durable before its turn, which is of use if its model is still the round's. A
        refusal ends the upload. Raises what `Coordinator.ingest` raises.
        """
        if ahead is not None and ahead.base is not self.aggregator.base:
            ahead = None  # the round ended meanwhile
        try:
            with contextlib.ExitStack() as resources:
                with self.ledger.reading() as session:
                    row = queries.update_row(session, identifier)
                    if row.state in ("accepted", "repeated"):
                        return None  # by another request, or while none was at it
                    if row.state != "receiving":
                        raise upload_ended_error(row)
                    if ahead is None:
                        file = resources.enter_context(self.aggregator.open(self.folder.upload(identifier)))
                    else:
                        file = ahead.update
                    accepted = queries.updates_of_phone(session, row.phone, "accepted")
                    earlier = next((one for one in accepted if one.sha256 == sha256), None)
                    origin = None if earlier is not None else self._late_base(session, row.phone, file.info)
                if earlier is None:
                    self._accept(row, Arrival(file, ahead, origin), sha256, nbytes)
                else:
                    self.uploads.repeat(identifier, earlier, file.info.codec, nbytes)
        except RefusalError as error:
            self.uploads.refuse(identifier, error, nbytes)
            raise
        except OwnStrategyError as error:
            number = self.aggregator.row.number
            failed = RoundFailedError(f"round {number}: its strategy failed; take part in the next round")
            self.uploads.refuse(identifier, failed, nbytes)
            self.fail(one_line(error), error)
            raise failed from error
        if earlier is not None:
            log_event("update_repeated", round=earlier.round, phone=row.phone, bytes=nbytes)
            return None
        taken, needed = self.open_round, self.open_round.clients_per_round
        fields = {"phone": row.phone, "bytes": row.length, "accepted": taken.accepted, "needed": needed}
        log_event("update_accepted", round=taken.round, **fields)
        return receipt_in(taken, row.phone, row.length)

    def _late_base(self, session: Session, phone: str, info: UpdateInfo) -> str | None:
        """The base model of a late update; None for an update of the open round. Raises RefusalError."""
        admission = self.admission(session)
        late = self._admit(session, admission, phone, info.base_sha256, info.round)
        if late is None:
            return None
        if not self.folder.has(self.folder.model(late.base_sha256)):
            raise LateUpdateError(
                f"the update is of round {late.number}, whose model file was deleted: fetch the model of "
                f"round {admission.row.number} and train again",
                admission.retry_seconds,
            )
        return late.base_sha256

    def _accept(self, row: Any, update: Arrival, sha256: str, nbytes: int) -> None:
        """Check, sum, store, record: in this order, so that a refusal leaves nothing behind."""
        folder, aggregator, file, info = self.folder, self.aggregator, update.file, update.file.info
        weight, measures = aggregator.take(update)
        if update.ahead is None:  # else it is durable already
            folder.sync(file.path)
        try:
            folder.link_into_place(file.path, folder.update(sha256), folder.stored_update(row.id))
            with self.ledger.writing() as session:
                receiving = expect_receiving(session, row.id)
                self._check_still_open(session, row.phone)
                found = {"sha256": sha256, "codec": info.codec, "tokens": info.tokens, "process": self.ledger.process}
                summed = {"base_sha256": update.origin, "weight": weight, "measures": json.dumps(measures)}
                self.uploads.accept(session, receiving, aggregator.row.number, nbytes, **found, **summed)
                seen = self._read_with_one_more(session)
        except (RefusalError, RoundClosingError):
            aggregator.take_back()
            raise
        aggregator.keep()
        if seen.phones is not None:
            seen.phones.add(row.phone)
        self._snapshot = seen

    def _check_still_open(self, session: Session, phone: str) -> None:
        """Raise RoundClosingError, DuplicatePhoneError if an update that was admitted can't be accepted any more."""

    def _read_with_one_more(self, session: Session) -> RoundSnapshot:
        """The open round once it has accepted one more update, within that transaction."""
        del session
        return self._snapshot.with_accepted(self._snapshot.open_round.accepted + 1)

    def take_message(
        self, kind: RequestKind, phone: str, number: int, message: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """Take a phone's message for masked round `number`; see MaskedRound.take.

        Raises RefusalError, RoundClosingError, StorageError.
        """
        row, stages = self.aggregator.row, self.aggregator.stages
        if number != row.number:
            return answer_of_another(self.ledger, kind, number, row.number)
        if not isinstance(stages, MaskedRound):
            raise OtherMessageError(f"round {number}: expected a masked round, this one is not; send an update")
        if kind == "keys":
            with self.ledger.reading() as session:
                self.admission(session).check_phone(session, phone)
        return stages.take(kind, phone, message, self.ledger.clock(), self.aggregator.closes_at)

    def sum_stored(self) -> None:
        """Sum the stored updates again, at a start, which finds damaged ones; in any order, the sum is the same."""
        if not self._loaded:
            self.load()
        if self.open_round.accepted:
            try:
                _ = self.aggregator.aggregation
            except OwnStrategyError as error:
                self.fail(one_line(error), error)

    def end_if_complete(self) -> None:
        """End the round if it has all its updates or its deadline has passed, and open the next one.

        If its model takes minutes, the round is closing until that is made. Raises StorageError if the disk fails (the
        accepted updates stay as they are) or if the server is stopping.
        """
        self.check_running()
        if not self._loaded:  # the last round ended, and the disk refused
            self.load()
        self.follow()
        failure = self.aggregator.stages.advance(self.ledger.clock(), self.aggregator.closes_at)
        if failure is not None:
            self.fail(failure)
            return
        if self.open_round.closing is None and self.find_ending() is None:
            self.due_since = None
            return
        if self.due_since is None:
            self.due_since = self.aggregator.row.closing_at or self.ledger.clock()
        self._end_due()

    def find_ending(self) -> Ending | None:
        """Return why the round should end now; None if it should not."""
        return self.aggregator.find_ending(self.open_round, self.ledger.clock())

    def _end_due(self) -> None:
        if not self.aggregator.settings.slow:
            self.close_round()
            return
        number = self.aggregator.row.number
        if self.open_round.closing is None:  # from here on it is, and takes no more updates
            with self.ledger.writing() as session:
                session.get_one(Round, number).closing_at = self.ledger.clock()
            self.load()
            log_event("round_closing", round=number, accepted=self.open_round.accepted)
        if not self.slow.busy:
            self.slow.begin(self.aggregator.row, self.aggregator.base.path, self.aggregator.stored_updates())

    def _end_slow(self, number: int, make: Callable[[], Model | None]) -> None:
        if not self.closed and self.aggregator.row.number == number:  # else it was rolled back
            self.end(make)

    def close_round(self) -> None:
        """Make the model and end the round. A crash in between does no harm: made again, the model has the same bits.

        Raises StorageError for a disk error; the round then stays open.
        """
        self.end(self._make_model)

    def end(self, make: Callable[[], Model | None]) -> None:
        """End the round with the model that `make` puts in place, or as failed if it cannot."""
        aggregator = self.aggregator
        full = not aggregator.settings.private and self.open_round.accepted >= aggregator.rules.clients_per_round
        ending: Ending = "full" if full else "deadline"
        try:
            after = self.record_model(ending, make())
        except Exception as error:
            self.fail(reason_of(error), error)
            return
        self.load_after_end()
        model = self.model_sha256
        when = "get it" if model == self.open_round.base_sha256 else f"get a model after round {after}"
        log_event("round_closed", f"phones {when}", round=aggregator.row.number, ending=ending, model=model)

    def _make_model(self) -> Model | None:
        """Make the model and put it in place. None, the base model, without updates: nothing changed.

        A private round publishes a noisy model even then, so that nobody can tell whether a phone took part.
        """
        aggregator, folder, row = self.aggregator, self.folder, self.aggregator.row
        updates = aggregator.stored_updates()
        if not updates and not aggregator.settings.private:
            return None
        before, how, average = publication.inputs_of(row, folder, self.ledger)
        with publication.model_drafts(folder, noise_runs.goes_on(row)) as drafts:
            made = make_model(aggregator.aggregation, updates, before, drafts, how, average=average)
            seal = aggregator.aggregation.context.next_seal
            return publication.move_into_place(made, drafts, row, folder, self.ledger.clock(), seal)

    def record_model(self, ending: Ending, model: Model | None) -> int:
        """End the round with `model`, whose file is in place, and open the next one. None: its base model.

        Returns the round after which phones get a model.
        """
        with end_round(self.ledger, self.aggregator.row, ending) as (session, row):
            if model is not None and session.get(Model, model.sha256) is None:
                session.add(model)
                session.flush()  # the rounds refer to it
                session.get_one(Model, row.base_sha256).buffers_seal = None  # no round begins with them again
            base, average = row.base_sha256, row.average_sha256
            if model is not None:
                base, average = (model.sha256, None) if publication.deploys(row, session) else (base, model.sha256)
            row.result_sha256 = row.base_sha256 if model is None else model.sha256
            session.flush()
            return publication.next_deployment(self._open_next(session, base, average), session)

    def _open_next(self, session: Session, base_sha256: str, average_sha256: str | None) -> Round:
        now, number = self.ledger.clock(), self.aggregator.row.number + 1
        return opening.add_round(session, now, number, base_sha256, self.settings, average_sha256=average_sha256)

    def fail(self, reason: str, error: Exception | None = None) -> None:
        """End the round as failed, and open the next one on the same model."""
        state, event = self.aggregator.after_failure
        with end_round(self.ledger, self.aggregator.row, "failed") as (session, row):
            row.reason = reason
            for update in queries.accepted_updates(session, row.number):
                update.state, update.reason = state, f"round {row.number} failed"
            session.flush()
            self._open_next(session, row.base_sha256, row.average_sha256)
        log_event(event, error, round=row.number, reason=reason)
        self.load_after_end()
