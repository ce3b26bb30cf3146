"""The round keeper: takes updates in, folds them, closes rounds, and finds its place again after a crash.

An update counts once its bytes and its ledger row are on disk. The aggregation itself lives in memory only: after a
restart the stored updates of the open round are aggregated again, and since that does not depend on order the next
model is the same to the bit.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.settings import PRIVATE_STRATEGIES
from phonograd.server_agg.aggregation.strategies import StrategySettings
from phonograd.server_agg.refusals import (
    InvalidUpdateError,
    LateUpdateError,
    MalformedUpdateError,
    RefusalError,
    one_line,
)
from phonograd.server_agg.rounds import admission, closing, drawing, failing, journal, opening
from phonograd.server_agg.rounds.in_hand import RoundInHand
from phonograd.server_agg.rounds.stored import on_base
from phonograd.server_agg.rounds.uploads import (
    Announcement,
    UploadBook,
    UploadRecord,
    count_request,
    move_to_round,
    over,
    still_on_its_way,
    truncate,
    without_path,
)
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round, Update, UpdateState


@dataclass(frozen=True)
class OpenRound:
    """The open round as a phone needs to see it; `model_bytes` is the size of the base model's file.

    closes_at: the deadline, in seconds since 1970, if it has one. halted: why no phone can take part, if none can.
    """

    round: int
    base_sha256: str
    model_bytes: int
    clients_per_round: int
    strategy: str
    weighting: str
    accepted: int
    closes_at: float | None = None
    halted: str | None = None
    codecs: tuple[str, ...] = tuple(CODECS)

    @property
    def private(self) -> bool:
        """Whether its phones are drawn; how many of them came is then the operator's to know alone."""
        return self.strategy in PRIVATE_STRATEGIES


@dataclass(frozen=True)
class Receipt:
    """The answer to an accepted update. `model_sha256`: the round's result, once the round is closed.

    accepted: updates that the round has by now; None of a private round, whose phones are not to know.
    """

    round: int
    phone: str
    accepted: int | None
    clients_per_round: int
    round_closed: bool
    model_sha256: str | None
    bytes: int


class RoundKeeper:
    """Keeps the rounds of one state folder; thread-safe, one update is settled at a time.

    The first time, the model of `artifacts` is copied in and round 1 opens; later, the state goes on where it was.
    A start that fails leaves no new folder behind. Raises ArtifactsError for a state that began with other artifacts,
    StorageError when the disk or the ledger refuses, WeightsError for a model that is damaged or not float32.
    """

    def __init__(
        self, artifacts: Artifacts, state: Path, settings: ServerSettings, clock: Callable[[], float] | None = None
    ):
        self.settings = settings
        self.folder = StateFolder(state)
        self._lock = threading.Lock()
        self._in_hand: RoundInHand | None = None
        try:
            self.ledger = Ledger(self.folder.ledger) if clock is None else Ledger(self.folder.ledger, clock=clock)
        except BaseException:
            self.folder.close(keep=False)
            raise
        try:
            self.uploads = UploadBook(self.ledger, self.folder, settings.expire_seconds)
            opening.open_state(self.folder, self.ledger, artifacts, settings)
            self._stand_at_open_round()
            for upload in self.uploads.recover():
                self._settle_pending(upload)
            self._close_if_due()
            if self._current.accepted:
                _ = self._hand().aggregation  # a stored update that is damaged is found now
        except BaseException:
            self._close(keep=False)
            raise

    def close(self) -> None:
        """Wait for the update in hand, then let go of all files."""
        self._close(keep=True)

    def _close(self, keep: bool) -> None:
        with self._lock:
            if self._in_hand is not None:
                self._in_hand.close()
                self._in_hand = None
            self.ledger.close()
            self.folder.close(keep)

    @property
    def security(self) -> SecuritySettings:
        """The settings' own, and with tokens for everyone where phones are drawn: else anyone could speak for them.

        That is a private strategy's, and a private round's that goes on under the settings it began with.
        """
        if self.settings.strategy.private or self._current.private:
            return replace(self.settings.security, auth="tokens")
        return self.settings.security

    @property
    def current(self) -> OpenRound:
        """The open round; a snapshot, read without waiting for the update in hand."""
        return self._current

    def participation(self, phone: str) -> str | None:
        """Why `phone` has no place in the open round; None if it has one. Raises nothing but StorageError."""
        try:
            with self.ledger.reading() as session:
                admission.check_first(session, self._standing, phone)
                admission.check_phone(session, self._standing, phone)
        except UpdateError as error:
            return str(error)
        return None

    def announce(self, announced: Announcement) -> UploadRecord:
        """Make room for an update that `announced.phone` is about to send.

        A resumable one that this phone has announced before is resumed, or, if it counts already, found complete;
        announcing another gives the earlier up. Raises what `settle` would (NotSelectedError, RoundFullError,
        DuplicatePhoneError, LateUpdateError, StaleUpdateError), as far as the announcement shows it, and StorageError.
        """
        try:
            return self._announced(announced)
        except RefusalError as error:
            self.uploads.turned_away(announced, self._current.round, _state_of(error), one_line(error), error.status)
            raise

    def settle(self, identifier: str, sha256: str, nbytes: int) -> Receipt:
        """Decide on an upload whose bytes are all in incoming/ and hash to `sha256`; `nbytes`: of its last request.

        The same phone with the same bytes again gets its receipt again. Raises MalformedUpdateError,
        InvalidUpdateError, UploadOverError (given up meanwhile) or what `announce` raises; then the upload is at its
        end, its row says why, and nothing else has changed. Raises StorageError when the disk refuses; then the update
        does not count, and its bytes stay.
        """
        path = self.folder.upload(identifier)
        with self._lock:
            self._hand()
            self._close_if_due()  # a round whose closing failed takes nobody else in
            row = self._row(identifier)
            try:
                if row.state != "receiving":
                    raise over(row)
                receipt = self._take(row, path, sha256, nbytes)
            except RefusalError as error:
                self.uploads.give_up(identifier, _state_of(error), one_line(error), error.status, nbytes)
                raise
            path.unlink(missing_ok=True)
            return receipt

    def receipt(self, upload: UploadRecord) -> Receipt:
        """The receipt of an accepted upload, or of one that was sent again."""
        with self.ledger.reading() as session:
            return self._receipt(session, session.get_one(Update, upload.id))

    def tick(self) -> None:
        """What time brings: deadlines, uploads given up, traffic written down. Call it every second or so."""
        self.ledger.flush()
        for upload in self.uploads.expire():
            journal.expired(upload)
        with self._lock:
            if self._in_hand is not None:
                self._draw_again()
                self._try_to_close()

    def rollback(self, number: int) -> OpenRound:
        """Go back to the model that round `number` ended with (0: the exported one); the open round begins anew on it.

        The updates of the open round are discarded; rounds since `number` stay in the ledger, marked. Raises
        UnknownRoundError if there is no such round or its model is not kept.
        """
        with self._lock:
            self._hand()
            opening.roll_back(self.folder, self.ledger, self.settings, number)
            self._stand_at_open_round()
            journal.rolled_back(number, self._current.round, self._current.base_sha256)
            return self._current

    def discard(self, number: int) -> int:
        """Delete the updates that are kept of round `number`, which failed; how many. Raises UnknownRoundError."""
        with self._lock:
            self._hand()
            return failing.discard(number, self.folder, self.ledger)

    # All below runs under the lock, or before anybody else holds the keeper.

    def _stand_at_open_round(self) -> None:
        self._stands = False  # until all of this is done
        with self.ledger.reading() as session:
            round_ = opening.expect_open_round(self.ledger, session)
            accepted = queries.accepted_updates(session, round_.number)
            models, stored = queries.all_models(session), queries.stored_updates(session)
        ended, self._in_hand = self._in_hand, RoundInHand(round_, self.folder, self.ledger)
        self._publish()  # first: to let go of the old round's sums and files takes a moment
        if ended is not None:
            ended.close()
        self.folder.noise_keys.forget_all_but(round_.number)  # nobody can tell a closed round's noise from its model
        self.folder.noise_keys.of(round_.number)  # there from the beginning, in a copy of the folder too
        self.folder.keep_updates(stored)
        origins = {update.base_sha256 for update in accepted if update.base_sha256 is not None}
        opening.prune_models(self.folder, models, origins | {round_.base_sha256}, self.settings.models_kept)
        self._stands = True

    def _hand(self) -> RoundInHand:
        if self._in_hand is None:
            raise StorageError(f"{self.folder.root}: the server is stopping; send again when it is back")
        return self._in_hand

    def _publish(self) -> None:
        hand = self._hand()
        with self.ledger.reading() as session:
            accepted = queries.count_updates(session, hand.row.number, "accepted")
            halted = drawing.halted(session, hand.row)
        self._standing = admission.Standing(
            number=hand.row.number,
            base_sha256=hand.row.base_sha256,
            rules=hand.rules,
            samples=hand.how.private,
            halted=halted,
            retry_seconds=self.settings.retry_seconds,
        )
        self._current = OpenRound(
            round=hand.row.number,
            base_sha256=hand.row.base_sha256,
            model_bytes=hand.base.nbytes,
            clients_per_round=hand.rules.clients_per_round,
            strategy=hand.how.strategy,
            weighting=hand.how.weighting,
            accepted=accepted,
            closes_at=hand.closes_at,
            halted=halted,
        )

    def _announced(self, announced: Announcement) -> UploadRecord:
        standing, space = self._standing, self._current.model_bytes
        with self.ledger.writing() as session:
            if announced.resumable and (known := self._known(session, announced)):
                return self.uploads.record(known)
            # What comes in one request is received in any case: its answer may be the receipt of an earlier one.
            if announced.resumable:
                admission.check_first(session, standing, announced.phone)
                if announced.base_sha256 is not None:
                    admission.check_base(session, standing, announced.base_sha256, announced.round)
            admission.check_phone(session, standing, announced.phone)
            given_up = [
                row.id
                for row in queries.updates_of_phone(session, announced.phone, "receiving")
                if row.resumable and announced.resumable
            ]
            for identifier in given_up:
                row = session.get_one(Update, identifier)
                self.uploads.end(row, "terminated", "the phone announced another update", 410)
            # The updates on their way, this one, and the model that the last of them will complete.
            to_come = self.uploads.bytes_to_come(session)
            self.folder.check_space(to_come + announced.length + space)
            record = self.uploads.record(self.uploads.add(session, announced, standing.number))
        for identifier in given_up:
            self.folder.upload(identifier).unlink(missing_ok=True)
        return record

    def _known(self, session: Session, announced: Announcement) -> Update | None:
        """What this phone announced or sent before, with the same bytes."""
        for row in queries.updates_of_phone(session, announced.phone, "receiving", "accepted"):
            same = announced.sha256 is not None and row.sha256 == announced.sha256 and row.length == announced.length
            if same and (row.resumable or row.state == "accepted"):
                return row
        return None

    def _row(self, identifier: str) -> Update:
        with self.ledger.reading() as session:
            return session.get_one(Update, identifier)

    def _take(self, row: Update, path: Path, sha256: str, nbytes: int) -> Receipt:
        try:
            update = UpdateFile(path)
        except (WeightsError, UpdateError) as error:
            if isinstance(error.__cause__, OSError):  # no fault of the phone's: too many open files, a bad disk
                raise StorageError(str(error)) from error
            raise MalformedUpdateError(without_path(error, path)) from error
        with update:
            if receipt := self._receipt_again(row, update, sha256, nbytes):
                return receipt
            with self.ledger.reading() as session:
                admission.check_first(session, self._standing, row.phone)
                info = update.info
                origin = admission.check_base(session, self._standing, info.base_sha256, info.round)
                admission.check_phone(session, self._standing, row.phone)
            if origin is not None and not self.folder.model(origin.base_sha256).is_file():
                raise LateUpdateError(
                    f"the update is of round {origin.number}, whose model is not kept any more: fetch the model of "
                    f"round {self._current.round} and train again",
                    self.settings.retry_seconds,
                )
            self._accept(row, update, sha256, nbytes, None if origin is None else origin.base_sha256)
        taken = self._current
        journal.accepted(row, taken.round, taken.accepted, taken.clients_per_round)
        self._try_to_close()
        with self.ledger.reading() as session:
            return self._receipt(session, session.get_one(Update, row.id))

    def _receipt_again(self, row: Update, update: UpdateFile, sha256: str, nbytes: int) -> Receipt | None:
        """The receipt of an update that this phone sent before, in the open round or one that is closed by now."""
        with self.ledger.reading() as session:
            accepted = queries.updates_of_phone(session, row.phone, "accepted")
        earlier = next((found for found in accepted if found.sha256 == sha256), None)
        if earlier is None:
            return None
        with self.ledger.writing() as session:
            repeated = still_on_its_way(session, row.id)
            if nbytes:
                count_request(session, repeated, nbytes)
            move_to_round(session, repeated, earlier.round)
            repeated.sha256, repeated.codec = sha256, update.info.codec
            self.uploads.end(repeated, "repeated", "sent before", 201)
        journal.repeated(row, earlier.round, nbytes)
        with self.ledger.reading() as session:
            return self._receipt(session, earlier)

    def _accept(self, row: Update, update: UpdateFile, sha256: str, nbytes: int, origin: str | None) -> None:
        """Check, fold, store, write down: in this order, so that a refusal leaves nothing behind."""
        hand, info = self._hand(), update.info
        with self.folder.syncing(update.path):  # meanwhile: the disk has time while the sums are added
            try:
                update.check_parts(hand.base)
                weight = hand.strategy.weight(info)
                aggregation = hand.aggregation
                with on_base(update, self.folder, origin) as source:
                    measures = aggregation.measure(source)
                    hand.put_aside()  # until the update counts
                    aggregation.add(source, weight, measures)
            except (WeightsError, UpdateError) as error:
                raise InvalidUpdateError(without_path(error, update.path)) from error
        self.folder.link_in(update.path, self.folder.update(sha256))
        with self.ledger.writing() as session:
            accepted = still_on_its_way(session, row.id)
            if nbytes:  # else all came before a restart, and was counted
                count_request(session, accepted, nbytes)
            # The ledger may have refused to count a request whose bytes the disk took; as traffic they are counted.
            accepted.received_bytes = max(accepted.received_bytes, accepted.length)
            move_to_round(session, accepted, hand.row.number)
            accepted.sha256, accepted.codec, accepted.tokens = sha256, info.codec, info.tokens
            accepted.weight, accepted.measures, accepted.base_sha256 = weight, json.dumps(measures), origin
            self.uploads.end(accepted, "accepted", "", 201)
        hand.put_back(aggregation)
        self._publish()

    def _receipt(self, session: Session, row: Update) -> Receipt:
        round_ = session.get_one(Round, row.round)
        private = StrategySettings.from_json(round_.strategy).private
        return Receipt(
            round=round_.number,
            phone=row.phone,
            accepted=None if private else queries.count_updates(session, round_.number, "accepted", "kept"),
            clients_per_round=RoundRules.from_json(round_.rules).clients_per_round,
            round_closed=round_.closed_at is not None,
            model_sha256=round_.result_sha256,
            bytes=row.length,
        )

    def _settle_pending(self, upload: UploadRecord) -> None:
        """Settle what had arrived whole before a restart; a phone that asks finds what became of it."""
        path = self.folder.upload(upload.id)
        sha256 = sha256_of_file(path)
        if upload.sha256 not in (None, sha256):
            journal.changed_before_restart(upload)
            truncate(path, 0)
            return
        try:
            self.settle(upload.id, sha256, 0)
        except UpdateError as error:
            journal.refused_after_restart(upload, error)

    def _try_to_close(self) -> None:
        """Close the round if it is due. A disk that refuses costs the accepted updates nothing: it is tried again."""
        try:
            self._close_if_due()
        except StorageError as error:
            journal.not_closed(self._current.round, error)

    def _close_if_due(self) -> None:
        if not self._stands:  # the disk refused to be read after a round had ended
            self._stand_at_open_round()
        hand = self._hand()
        ending = hand.ending(self._current.accepted, self._current.halted is not None)
        if ending is None:
            return
        try:
            due = closing.RoundToClose(hand.row, hand.how, hand.aggregation, hand.stored(), ending)
            closing.close_round(due, self.folder, self.ledger, hand.base, self.settings)
        except Exception as error:
            self._fail(hand.row, error)
            return
        self._stand_at_open_round()
        journal.closed(hand.row.number, ending, self._current.base_sha256)

    def _fail(self, round_: Round, error: Exception) -> None:
        """End the round as failed. Raises StorageError if it is the disk that refuses: that is tried again."""
        if isinstance(error, StorageError):
            raise error
        if failing.refused_by_the_disk(error):
            raise StorageError(str(error)) from error
        reason = failing.fail_round(round_, error, self.ledger, self.settings)
        journal.failed(round_.number, reason, error)
        self._stand_at_open_round()

    def _draw_again(self) -> None:
        """Draw the phones of a private round that found too few enrolled when it opened."""
        hand = self._hand()
        if not hand.how.private or hand.row.population:
            return
        with self.ledger.reading() as session:
            if len(drawing.enrolled(session)) < hand.how.population:
                return
        with self.ledger.writing() as session:
            drawing.draw(session, session.get_one(Round, hand.row.number), self.ledger.clock())
        self._stand_at_open_round()


def _state_of(error: RefusalError) -> UpdateState:
    return "late" if isinstance(error, LateUpdateError) else "rejected"
