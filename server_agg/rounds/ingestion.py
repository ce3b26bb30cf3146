"""An update's way into the round: a place for its upload, then, once its bytes came, it is accepted or refused."""

import contextlib
import json
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import OutOfMemoryError, StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateInfo
from phonograd.server_agg.aggregation.own import OwnStrategyError
from phonograd.server_agg.aggregation.strategies import Measures
from phonograd.server_agg.refusals import (
    InvalidUpdateError,
    LateUpdateError,
    MalformedUpdateError,
    RefusalError,
    RoundClosingError,
    RoundFailedError,
    one_line,
)
from phonograd.server_agg.rounds import admission, closing
from phonograd.server_agg.rounds.aggregator import OpenedUpdate
from phonograd.server_agg.rounds.current_round import SHARED_CLOSING_SECONDS, LiveRound, RoundSnapshot
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.rounds.responses import Receipt, receipt_in
from phonograd.server_agg.rounds.uploads import (
    UploadMetadata,
    UploadRecord,
    UploadStore,
    expect_receiving,
    move_traffic,
    redact_path,
    upload_ended_error,
)
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import WireBytes, add_traffic, count_request
from phonograd.server_agg.storage.tables import Round


def upload_for(current: LiveRound, uploads: UploadStore, metadata: UploadMetadata) -> UploadRecord:
    """A new upload, or this phone's earlier one of the same bytes. Raises what `Coordinator.create_upload` raises."""
    with current.ledger.writing() as session:
        state = current.admission_state(session)
        rows = queries.updates_of_phone(session, metadata.phone, "receiving", "accepted")
        for row in rows:
            if metadata.sha256 is not None and (row.sha256, row.length) == (metadata.sha256, metadata.length):
                return uploads.record(session, row)
        admission.check_duplicate(session, state, metadata.phone)
        if metadata.base_sha256 is not None:
            admission.check_base(session, state, metadata.base_sha256, metadata.round)
        admission.check_phone(session, state, metadata.phone)
        if (masked := current.masked) is not None:
            masked.check_uploader(metadata.phone)
        replaced = [row for row in rows if row.state == "receiving"]
        for row in replaced:
            uploads.end(session, row.id, "terminated", "the phone started another upload", 410)
        # Space for the uploads in progress, this one, and what the round writes: its model, and at most as much again
        # of a lossless link, or a draft and a residual; and dp-ftrl's buffers, in float64.
        files = 2 if state.rules.publish == "rows-f32" else 3
        files += 0 if state.run is None else 2 * len(state.run.decays)
        space = queries.pending_bytes(session) + metadata.length + files * current.open_round.model_bytes
        current.folder.check_space(space)
        record = uploads.add(session, metadata, state.number)
    for row in replaced:
        uploads.bytes.delete(row.id)
    return record


def ingest(
    current: LiveRound,
    uploads: UploadStore,
    identifier: str,
    sha256: str,
    nbytes: int,
    ahead: DecodedUpdate | None = None,
) -> Receipt | None:
    """Ingest one upload; for one thread at a time. Its receipt; None for an update that was accepted before, in any
    round.

    ahead: it, measured and made durable before its turn, which is of use if its model is still the round's. A refusal
    ends the upload. Raises what `Coordinator.ingest` raises.
    """
    origin = None
    if ahead is not None and ahead.base is not current.aggregator.base:
        ahead = None  # the round ended meanwhile
    try:
        with contextlib.ExitStack() as resources:
            with current.ledger.reading() as session:
                row = queries.update_row(session, identifier)
                if row.state in ("accepted", "repeated"):
                    return None  # by another request, or while none was at it
                if row.state != "receiving":
                    raise upload_ended_error(row)
                if ahead is None:
                    update = resources.enter_context(_opened(current, current.folder.upload(identifier)))
                else:
                    update = ahead.update
                accepted = queries.updates_of_phone(session, row.phone, "accepted")
                earlier = next((one for one in accepted if one.sha256 == sha256), None)
                if earlier is None:
                    origin = _admitted(session, current, row.phone, update.info)
            if earlier is None:
                _accept(current, uploads, row, update, ahead, origin, sha256, nbytes)
            else:
                _repeat(current, uploads, row, update, earlier, nbytes)
    except RefusalError as error:
        uploads.refuse(identifier, error, nbytes)
        raise
    except OwnStrategyError as error:
        number = current.aggregator.row.number
        failed = RoundFailedError(f"round {number}: its strategy failed; take part in the next round")
        uploads.refuse(identifier, failed, nbytes)
        closing.fail(current, one_line(error), error)
        raise failed from error
    if earlier is not None:
        log_event("update_repeated", round=earlier.round, phone=row.phone, bytes=nbytes)
        return None
    taken, needed = current.open_round, current.open_round.clients_per_round
    fields = {"phone": row.phone, "bytes": row.length, "accepted": taken.accepted, "needed": needed}
    log_event("update_accepted", round=taken.round, **fields)
    return receipt_in(taken, row.phone, row.length)


def _admitted(session: Session, current: LiveRound, phone: str, info: UpdateInfo) -> str | None:
    """The base model of a late update; None for an update of the open round. Raises RefusalError."""
    state = current.admission_state(session)
    admission.check_duplicate(session, state, phone)
    late = admission.check_base(session, state, info.base_sha256, info.round)
    admission.check_phone(session, state, phone)
    if (masked := current.masked) is not None:
        masked.check_uploader(phone)
    if late is None:
        return None
    if not current.folder.has(current.folder.model(late.base_sha256)):
        raise LateUpdateError(
            f"the update is of round {late.number}, whose model file was deleted: fetch the model of "
            f"round {state.number} and train again",
            state.retry_seconds,
        )
    return late.base_sha256


def _repeat(
    current: LiveRound, uploads: UploadStore, row: Any, update: OpenedUpdate, earlier: Any, nbytes: int
) -> None:
    with current.ledger.writing() as session:
        repeated = expect_receiving(session, row.id)
        if nbytes:
            count_request(session, repeated, nbytes)
        move_traffic(session, repeated, repeated.received_bytes + nbytes, earlier.round)
        of_earlier = {"round": earlier.round, "sha256": earlier.sha256, "codec": update.info.codec}
        uploads.end(session, row.id, "repeated", "sent before", 201, **of_earlier)


def _accept(
    current: LiveRound,
    uploads: UploadStore,
    row: Any,
    update: OpenedUpdate,
    ahead: DecodedUpdate | None,
    origin: str | None,
    sha256: str,
    nbytes: int,
) -> None:
    """Check, aggregate, store, record: in this order, so that a refusal leaves nothing behind."""
    folder, aggregator, info = current.folder, current.aggregator, update.info
    if aggregator.shared:  # its sum is given away, and another server may have ended the round since
        raise _closing(aggregator.row.number)
    try:
        weight = aggregator.weight(info)
        measures = aggregator.take(update, ahead, origin, weight)
    except (WeightsError, UpdateError) as error:
        _require_readable(update.path)
        raise InvalidUpdateError(redact_path(error, update.path)) from error
    if ahead is None:  # else it is durable already
        folder.sync(update.path)
    try:
        folder.link_into_place(update.path, folder.update(sha256), folder.stored_update(row.id))
        seen = _recorded(current, uploads, row, info, origin, sha256, nbytes, weight, measures)
    except (RefusalError, RoundClosingError):
        aggregator.take_back(update, ahead, origin, weight, measures)
        raise
    aggregator.keep()
    current.show(seen, row.phone)


def _recorded(
    current: LiveRound,
    uploads: UploadStore,
    row: Any,
    info: UpdateInfo,
    origin: str | None,
    sha256: str,
    nbytes: int,
    weight: int,
    measures: Measures,
) -> RoundSnapshot:
    """The transaction that accepts an update. Returns the round with it."""
    ledger, aggregator = current.ledger, current.aggregator
    with ledger.writing() as session:
        accepted, number = expect_receiving(session, row.id), aggregator.row.number
        state = current.admission_state(session)  # another server may have done something since `_admitted`
        if ledger.shared:
            if state.closing or current.row_if_same(session) is None:
                raise _closing(number)
            admission.check_duplicate(session, state, row.phone)
        # Counting an earlier request may have failed although its bytes are on disk.
        received = max(accepted.received_bytes + nbytes, accepted.length)
        if nbytes:  # otherwise all bytes came before a restart and were counted
            add_traffic(session, accepted.round, row.phone, "upload", WireBytes(up_body=nbytes, requests=0))
        move_traffic(session, accepted, received, number)
        counted = {"received_bytes": received, "requests": accepted.requests + bool(nbytes), "round": number}
        found = {"sha256": sha256, "codec": info.codec, "tokens": info.tokens, "base_sha256": origin}
        measured = {"weight": weight, "measures": json.dumps(measures), "process": ledger.process}
        uploads.end(session, row.id, "accepted", "", 201, **counted, **found, **measured)
        seen = current.seen_with_one_more(session)
        full = seen.open_round.accepted >= aggregator.rules.clients_per_round
        if ledger.shared and full and not aggregator.settings.private:
            # The round takes no more updates; whichever server comes first makes its model.
            session.get_one(Round, number).closing_at = ledger.clock()
            session.flush()
            seen = current.seen(session)
        return seen


def _closing(number: int) -> RoundClosingError:
    return RoundClosingError(f"round {number}: closing; send the update again", SHARED_CLOSING_SECONDS)


def _opened(current: LiveRound, path: Path) -> contextlib.AbstractContextManager[OpenedUpdate]:
    try:
        return current.aggregator.opened(path)
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
