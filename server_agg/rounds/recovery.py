"""After a restart: uploads that had arrived whole are settled, and stored updates are aggregated again.

The aggregation lives in memory only. Since it does not depend on order, the next model is the same to the bit.
"""

from collections.abc import Callable

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.rounds import journal
from phonograd.server_agg.rounds.answers import Receipt
from phonograd.server_agg.rounds.current import CurrentRound
from phonograd.server_agg.rounds.ending import end_if_complete
from phonograd.server_agg.rounds.uploads import UploadBook, UploadRecord, truncate

Settle = Callable[[str, str, int], Receipt]


def recover(current: CurrentRound, uploads: UploadBook, settle: Settle) -> None:
    """Go on where the server stopped; `settle` is the coordinator's. Raises StorageError for a damaged update."""
    for upload in uploads.recover():
        _settle(current, upload, settle)
    end_if_complete(current)
    if current.open_round.accepted:
        _ = current.aggregator.aggregation  # a stored update that is damaged is found now


def _settle(current: CurrentRound, upload: UploadRecord, settle: Settle) -> None:
    """Settle what had arrived whole; a phone that asks finds what became of it."""
    path = current.folder.upload(upload.id)
    sha256 = sha256_of_file(path)
    if upload.sha256 not in (None, sha256):
        journal.changed_before_restart(upload)
        truncate(path, 0)
        return
    try:
        settle(upload.id, sha256, 0)
    except UpdateError as error:
        journal.refused_after_restart(upload, error)
