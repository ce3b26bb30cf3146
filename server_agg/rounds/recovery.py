"""Recovery at the start: complete uploads are ingested, and stored updates aggregated again.

The aggregation exists only in memory. It does not depend on the order of updates, so the next model is the same to the
bit.
"""

import threading
from collections.abc import Callable

from phonograd.device_runtime.base.errors import StorageError, UpdateError
from phonograd.server_agg.refusals import RoundClosingError
from phonograd.server_agg.rounds import log_events
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord, UploadStore

Ingest = Callable[[str, str, int], Receipt]


def recover(
    current: LiveRound, uploads: UploadStore, ingest: Ingest, end: Callable[[], None], lock: threading.Lock
) -> None:
    """Continue where the server stopped. ingest, lock: the coordinator's; end: ends the round if it is complete, or
    tries again later if the disk refuses.

    Raises StorageError for a damaged update.
    """
    for upload in uploads.recover():
        _ingest(uploads, upload, ingest)
    with lock:
        current.load_if_needed()
        if current.open_round.accepted and not current.ledger.shared:
            _ = current.aggregator.aggregation  # finds damaged stored updates now
        end()


def ingest_abandoned(uploads: UploadStore, ingest: Ingest) -> None:
    """Ingest the complete uploads of servers that were killed, whose phones have not come again."""
    for upload in uploads.abandoned():
        _ingest(uploads, upload, ingest)


def _ingest(uploads: UploadStore, upload: UploadRecord, ingest: Ingest) -> None:
    """Ingest an upload that was complete before the restart; the phone can ask for its outcome."""
    sha256 = uploads.bytes.sha256(upload.id)
    if upload.sha256 not in (None, sha256):
        log_events.upload_changed(upload)
        uploads.bytes.cut(upload.id, 0)
        return
    try:
        ingest(upload.id, sha256, 0)
    except RoundClosingError:
        return  # its phone comes again
    except StorageError as error:  # a full disk: phones can fetch the model meanwhile
        log_events.update_not_ingested(upload, error)
    except UpdateError as error:
        log_events.update_refused(upload, error)
