"""Rollback and discard without a server: on the state folder of a stopped one, or on what several servers share.

Servers that share a ledger may be running. To them this is one more server: it changes rounds in the transactions that
they use, while it alone may close a round.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import ending, opening
from phonograd.server_agg.settings.storage import ServerStorage, storage_at
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.folder_claim import LEDGER
from phonograd.server_agg.storage.ledger import Ledger, ledger_of
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.stores import store_of


def roll_back(place: Path | ServerStorage, number: int, actor: str) -> dict[str, int | str]:
    """Roll back to the model of round `number` (0: the exported model). Returns the new open round and its model.

    The new round has the settings of the one that was open, and none of its updates. Raises UnknownRoundError for a
    round that does not exist or whose model file was deleted, UsageError for a shared ledger without its store,
    StorageError if a server uses the folder or closes a round, if there is no ledger, or if it is another's store.
    """
    with _hold(place) as (folder, ledger):
        ending.roll_back(folder, ledger, None, number)
        AuditLog(ledger).record_done(actor, "rollback", f"to round {number}")
        with ledger.reading() as session:
            opened = opening.expect_open_round(ledger, session)
        folder.noise_keys.delete_all_except(opened.number)
        return {"round": opened.number, "base_sha256": opened.base_sha256}


def discard(place: Path | ServerStorage, number: int, actor: str) -> int:
    """Delete the updates kept from failed round `number`. Returns how many. Raises like `roll_back`."""
    with _hold(place) as (folder, ledger):
        discarded = ending.discard(number, folder, ledger)
        AuditLog(ledger).record_done(actor, "discard", f"round {number}", f"{discarded} updates")
        return discarded


@contextlib.contextmanager
def _hold(place: Path | ServerStorage) -> Iterator[tuple[StateFolder, Ledger]]:
    """Ledger and files, while no server closes a round, or deletes the model to return to."""
    storage = storage_at(place)
    with contextlib.ExitStack() as stack:
        folder = StateFolder(_root(storage, stack), store_of(storage))
        stack.callback(folder.close)
        ledger = stack.enter_context(ledger_of(storage))
        folder.share_noise_keys(ledger)
        if not stack.enter_context(ledger.closing_lock()):
            raise StorageError(f"{ledger.name}: a server is closing a round; wait until it is closed, and try again")
        if folder.store.elsewhere:
            _check_store(storage, folder, ledger)
        yield folder, ledger


def _root(storage: ServerStorage, stack: contextlib.ExitStack) -> Path:
    """The state folder; for a shared ledger an empty one, as of a server that starts with a new one."""
    if isinstance(storage.ledger, str):
        return Path(stack.enter_context(tempfile.TemporaryDirectory()))
    if not (storage.ledger / LEDGER).is_file():
        raise StorageError(f"{storage.ledger}: no ledger found; expected the state folder of a `phonograd serve`")
    return storage.ledger


def _check_store(storage: ServerStorage, folder: StateFolder, ledger: Ledger) -> None:
    """Any model will do: one that the store has lost may be why the operator goes back."""
    with ledger.reading() as session:
        known = {model.sha256 for model in queries.all_models(session)}
    if not known & folder.kept_models():
        raise StorageError(
            f"store {storage.store}: expected models of {ledger.name} in it, found none; "
            "give the `store` that the servers use"
        )
