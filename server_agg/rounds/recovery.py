"""Recovery at the start: complete uploads are ingested, and stored updates aggregated again.

The aggregation exists only in memory. It does not depend on the order of updates, so the next model is the same to the
bit.
"""

from collections.abc import Callable

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.rounds import log_events
from phonograd.server_agg.rounds.completion import end_if_complete
from phonograd.server_agg.rounds.current_round import CurrentRound
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadRecord, UploadStore, truncate

Ingest = Callable[[str, str, int], Receipt]


def recover(current: CurrentRound, uploads: UploadStore, ingest: Ingest) -> None:
    """Continue where the server stopped. `ingest`: the coordinator's. Raises StorageError for a damaged update."""
    for upload in uploads.recover():
        _ingest(current, upload, ingest)
    end_if_complete(current)
    if current.open_round.accepted:
        _ = current.aggregator.aggregation  # finds damaged stored updates now


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
    except UpdateError as error:
        log_events.update_refused(upload, error)
