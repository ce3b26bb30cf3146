"""What an operator does to the state folder of a server that is stopped."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import failed_rounds, opening, rollback
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.folder_claim import LEDGER
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder


def roll_back(state: Path, number: int, actor: str) -> dict[str, int | str]:
    """Go back to the model that round `number` ended with (0: the exported one): the round that is open now.

    It has the settings of the one that was open, and none of its updates. Raises UnknownRoundError if there is no such
    round or its model is not kept, StorageError if a server uses the folder or it holds no ledger.
    """
    with _stopped(state) as (folder, ledger):
        rollback.roll_back(folder, ledger, None, number)
        AuditLog(ledger).record_done(actor, "rollback", f"to round {number}")
        with ledger.reading() as session:
            opened = opening.expect_open_round(ledger, session)
        folder.noise_keys.delete_all_except(opened.number)
        return {"round": opened.number, "base_sha256": opened.base_sha256}


def discard(state: Path, number: int, actor: str) -> int:
    """Delete the updates that are kept of round `number`, which failed; how many. Raises as `roll_back` does."""
    with _stopped(state) as (folder, ledger):
        discarded = failed_rounds.discard(number, folder, ledger)
        AuditLog(ledger).record_done(actor, "discard", f"round {number}", f"{discarded} updates")
        return discarded


@contextlib.contextmanager
def _stopped(state: Path) -> Iterator[tuple[StateFolder, Ledger]]:
    if not (state / LEDGER).is_file():
        raise StorageError(f"{state}: no ledger here; expected a state folder that `phonograd serve` has written")
    with contextlib.ExitStack() as stack:
        folder = StateFolder(state)
        stack.callback(folder.close)
        ledger = Ledger(folder.ledger, create=False)
        stack.callback(ledger.close)
        yield folder, ledger
