"""Recovery at the start: complete uploads are ingested, and stored updates aggregated again.

The aggregation exists only in memory. It does not depend on the order of updates, so the next model is the same to the
bit.
"""

import threading
from collections.abc import Callable

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.refusals import RoundClosingError
from phonograd.server_agg.rounds import log_events
from phonograd.server_agg.rounds.current_round import CurrentRound
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord, UploadStore, truncate

Ingest = Callable[[str, str, int], Receipt]


def recover(
    current: CurrentRound, uploads: UploadStore, ingest: Ingest, end: Callable[[], None], lock: threading.Lock
) -> None:
    """Continue where the server stopped. ingest, lock: the coordinator's; end: ends the round if it is complete.

    Raises StorageError for a damaged update.
    """
    for upload in uploads.recover():
        _ingest(current, upload, ingest)
    with lock:
        current.load_if_needed()
        if current.open_round.accepted:
            _ = current.aggregator.aggregation  # finds damaged stored updates now
        end()


def _ingest(current: CurrentRound, upload: UploadRecord, ingest: Ingest) -> None:
    """Ingest an upload that was complete before the restart; the phone can ask for its outcome."""
    path = current.folder.upload(upload.id)
    sha256 = sha256_of_file(path)
    if upload.sha256 not in (None, sha256):
        log_events.upload_changed(upload)
        truncate(path, 0)
        return
    try:
        ingest(upload.id, sha256, 0)
    except RoundClosingError:
        return  # its phone comes again
    except UpdateError as error:
        log_events.update_refused(upload, error)
