"""Ingesting a complete upload: its update is accepted, was accepted before, or is refused."""

import json
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import OutOfMemoryError, StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.tile_source import CachedTiles, rebased
from phonograd.server_agg.refusals import (
    InvalidUpdateError,
    LateUpdateError,
    MalformedUpdateError,
    RefusalError,
    RoundClosingError,
)
from phonograd.server_agg.rounds import admission, log_events
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.current_round import SHARED_CLOSING_SECONDS, LiveRound
from phonograd.server_agg.rounds.stored_update import late_base
from phonograd.server_agg.rounds.uploads import (
    UploadStore,
    expect_receiving,
    move_to_round,
    redact_path,
    upload_ended_error,
)
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import count_request
from phonograd.server_agg.storage.tables import Round, Update


class UpdateIngester:
    """Ingests uploads, one at a time."""

    def __init__(self, current: LiveRound, uploads: UploadStore):
        self._current = current
        self._uploads = uploads
        self._folder = current.folder
        self._ledger = current.ledger

    def ingest(self, identifier: str, sha256: str, nbytes: int) -> bool:
        """Returns False for an update that was accepted before, in any round. A refusal ends the upload.

        Raises what `Coordinator.ingest` raises.
        """
        with self._ledger.reading() as session:
            row = session.get_one(Update, identifier)
            accepted = queries.updates_of_phone(session, row.phone, "accepted")
        earlier = next((update for update in accepted if update.sha256 == sha256), None)
        try:
            if row.state != "receiving":
                raise upload_ended_error(row)
            with _opened(self._folder.upload(identifier)) as update:
                if earlier is None:
                    self._accept(row, update, sha256, nbytes)
                else:
                    self._repeat(row, update, earlier, nbytes)
        except RefusalError as error:
            self._uploads.refuse(identifier, error, nbytes)
            raise
        if earlier is not None:
            log_events.update_repeated(row, earlier.round, nbytes)
            return False
        taken = self._current.open_round
        log_events.update_accepted(row, taken.round, taken.accepted, taken.clients_per_round)
        return True

    def _repeat(self, row: Update, update: UpdateFile, earlier: Update, nbytes: int) -> None:
        with self._ledger.writing() as session:
            repeated = expect_receiving(session, row.id)
            if nbytes:
                count_request(session, repeated, nbytes)
            move_to_round(session, repeated, earlier.round)
            repeated.sha256, repeated.codec = earlier.sha256, update.info.codec
            self._uploads.end(repeated, "repeated", "sent before", 201)

    def _accept(self, row: Update, update: UpdateFile, sha256: str, nbytes: int) -> None:
        """Check, aggregate, store, record: in this order, so that a refusal leaves nothing behind."""
        origin = self._admitted(row, update)
        aggregator, info = self._current.aggregator, update.info
        shared = self._ledger.shared  # then the server that closes the round adds what is stored
        with self._folder.syncing(update.path):  # the disk syncs while the update is aggregated
            try:
                update.check_parts(aggregator.base)
                weight = aggregator.strategy.weight(info)
                aggregation = aggregator.measuring if shared else aggregator.aggregation
                with rebased(update, late_base(self._folder, origin)) as tiles:
                    source = CachedTiles(tiles)
                    measures = aggregation.measure(source)
                    if not shared:
                        aggregator.invalidate()  # until the update is recorded
                        aggregation.add(source, weight, measures)
            except (WeightsError, UpdateError) as error:
                _require_readable(update.path)
                raise InvalidUpdateError(redact_path(error, update.path)) from error
        self._folder.link_into_place(update.path, self._folder.update(sha256), self._folder.stored_update(row.id))
        with self._ledger.writing() as session:
            accepted = expect_receiving(session, row.id)
            if shared:
                self._expect_open(session, row.phone)
            if nbytes:  # otherwise all bytes came before a restart and were counted
                count_request(session, accepted, nbytes)
            # Counting an earlier request may have failed although its bytes are on disk.
            accepted.received_bytes = max(accepted.received_bytes, accepted.length)
            move_to_round(session, accepted, aggregator.row.number)
            accepted.sha256, accepted.codec, accepted.tokens = sha256, info.codec, info.tokens
            accepted.weight, accepted.measures, accepted.base_sha256 = weight, json.dumps(measures), origin
            self._uploads.end(accepted, "accepted", "", 201)
            if shared:
                _close_if_full(session, aggregator, self._ledger.clock())
        if not shared:
            aggregator.keep(aggregation)
        self._current.publish()

    def _expect_open(self, session: Session, phone: str) -> None:
        """Raise what `_admitted` would, if another server ended the round or took an update of the phone since then."""
        state, number = self._current.admission_state(session), self._current.aggregator.row.number
        if state.closing or state.number != number:
            raise RoundClosingError(f"round {number}: closing; send the update again", SHARED_CLOSING_SECONDS)
        admission.check_duplicate(session, state, phone)

    def _admitted(self, row: Update, update: UpdateFile) -> str | None:
        """The base model of a late update; None for an update of the open round. Raises RefusalError."""
        info = update.info
        with self._ledger.reading() as session:
            state = self._current.admission_state(session)
            admission.check_duplicate(session, state, row.phone)
            late = admission.check_base(session, state, info.base_sha256, info.round)
            admission.check_phone(session, state, row.phone)
        if late is None:
            return None
        if not self._folder.has(self._folder.model(late.base_sha256)):
            raise LateUpdateError(
                f"the update is of round {late.number}, whose model file was deleted: fetch the model of "
                f"round {state.number} and train again",
                state.retry_seconds,
            )
        return late.base_sha256


def _opened(path: Path) -> UpdateFile:
    try:
        return UpdateFile(path)
    except OutOfMemoryError as error:  # too many open files, too
        raise StorageError(str(error)) from error
    except UpdateError as error:
        _require_readable(path)
        raise MalformedUpdateError(redact_path(error, path)) from error


def _require_readable(path: Path) -> None:
    """Raise StorageError if a refused update could not be read: that is not the phone's fault."""
    try:
        sha256_of_file(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; check the disk") from error


def _close_if_full(session: Session, aggregator: RoundAggregator, now: float) -> None:
    """Have the round take no more updates if it has all; whichever server comes first makes its model."""
    row = session.get_one(Round, aggregator.row.number)
    if queries.count_updates(session, row.number, "accepted") >= aggregator.rules.clients_per_round:
        row.closing_at = now
