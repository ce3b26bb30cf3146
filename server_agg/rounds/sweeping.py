"""Deleting files that are needed no longer: those of the state folder, and objects of the store."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.log_format import event
from phonograd.server_agg.rounds.opening import expect_open_round
from phonograd.server_agg.rounds.publication import links_to_keep
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import BY_HASH_FOLDERS, StateFolder
from phonograd.server_agg.storage.tables import Update

log = logging.getLogger(__name__)

# Of servers' processes that have ended.
FORGET_SECONDS = 24 * 3600.0


def sweep_folder(folder: StateFolder, ledger: Ledger, settings: ServerSettings) -> None:
    """Delete files of the state folder, while no update is being ingested."""
    with ledger.reading() as session:
        stored, number, kept = (
            queries.needed_update_hashes(session),
            expect_open_round(ledger, session).number,
            _files_to_keep(session, ledger, settings),
        )
    folder.delete_updates_except(stored)
    folder.delete_closing_except(number)
    for part, hashes in kept.items():
        folder.delete_except(part, hashes)


def delete_updates(folder: StateFolder, updates: Iterable[Update]) -> None:
    """Delete updates that have just been discarded from the store. What fails, `sweep_store` does after the round."""
    with _later():
        folder.store.delete(folder.stored_update(update.id) for update in updates)


def sweep_store(folder: StateFolder, ledger: Ledger, settings: ServerSettings) -> None:
    """Delete objects of the store, while no other server closes a round (`Ledger.closing_lock`).

    Other servers may be accepting updates: whatever is listed here had its row in the ledger before. What cannot be
    deleted now is deleted after the next round.
    """
    store = folder.store
    if not store.elsewhere:
        return
    with _later():
        stored = {part: store.names(part) for part in ("updates", "incoming", *BY_HASH_FOLDERS)}
        sums = store.names("parts")
        with ledger.writing() as session:
            number = expect_open_round(ledger, session).number
            queries.delete_ended_chunks(session)
            queries.delete_processes(session, ledger.clock() - FORGET_SECONDS)
            receiving, needed = queries.update_ids_in_use(session)
            kept = {"updates": receiving | needed, "incoming": receiving, **_files_to_keep(session, ledger, settings)}
        for part, names in stored.items():
            # Names are ID, ID/CHUNK or HASH.safetensors.
            old = (name for name in names if name.split("/")[0].removesuffix(".safetensors") not in kept[part])
            store.delete(f"{part}/{name}" for name in old)
        # Of the open round or a later one, a server may be storing some: their rows come after them.
        store.delete(f"parts/{name}" for name in sums if int(name.split("-")[0]) < number)


@contextlib.contextmanager
def _later() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        log.warning("old objects are kept until the next round: %s", error, extra=event("not_swept"))


def _files_to_keep(session: Session, ledger: Ledger, settings: ServerSettings) -> Mapping[str, set[str]]:
    """Hashes of the files to keep, by folder: of the first model, the newest ones, those that phones had in the newest
    rounds, those that updates of the open round are made from, and the links to the current one.
    """
    models, newest, current = queries.all_models(session), settings.models_kept, expect_open_round(ledger, session)
    needed = {current.base_sha256} | queries.late_bases(session, current.number)
    if newest is None:
        kept = models
    else:
        needed |= {model.sha256 for model in (models[0], *models[-newest:])}
        needed |= queries.bases_after(session, current.number - newest)
        kept = [model for model in models if model.sha256 in needed]
    linked = links_to_keep(models, current.base_sha256, settings.links_kept)
    return {
        "models": {model.sha256 for model in kept},
        "optimizers": {str(model.optimizer_sha256) for model in kept},
        "residuals": {str(model.residual_sha256) for model in kept},
        "buffers": {str(model.buffers_sha256) for model in kept if model.sha256 == current.base_sha256},
        "links": {str(model.link_sha256) for model in linked},
    }
