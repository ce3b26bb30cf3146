"""Rollback and discard on the state folder of a stopped server."""

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
    """Roll back to the model of round `number` (0: the exported model). Returns the new open round and its model.

    The new round has the settings of the one that was open, and none of its updates. Raises UnknownRoundError for a
    round that does not exist or whose model file was deleted, StorageError if a server uses the folder or it has no
    ledger.
    """
    with _stopped(state) as (folder, ledger):
        rollback.roll_back(folder, ledger, None, number)
        AuditLog(ledger).record_done(actor, "rollback", f"to round {number}")
        with ledger.reading() as session:
            opened = opening.expect_open_round(ledger, session)
        folder.noise_keys.delete_all_except(opened.number)
        return {"round": opened.number, "base_sha256": opened.base_sha256}


def discard(state: Path, number: int, actor: str) -> int:
    """Delete the updates kept from failed round `number`. Returns how many. Raises like `roll_back`."""
    with _stopped(state) as (folder, ledger):
        discarded = failed_rounds.discard(number, folder, ledger)
        AuditLog(ledger).record_done(actor, "discard", f"round {number}", f"{discarded} updates")
        return discarded


@contextlib.contextmanager
def _stopped(state: Path) -> Iterator[tuple[StateFolder, Ledger]]:
    if not (state / LEDGER).is_file():
        raise StorageError(f"{state}: no ledger found; expected the state folder of a `phonograd serve`")
    with contextlib.ExitStack() as stack:
        folder = StateFolder(state)
        stack.callback(folder.close)
        ledger = Ledger(folder.ledger, create=False)
        stack.callback(ledger.close)
        yield folder, ledger
