"""Discarding the updates of a failed round, and rolling back to an earlier model, by a server or without one."""

from phonograd.server_agg.refusals import UnknownRoundError
from phonograd.server_agg.rounds import noise_runs, opening, sweeping
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round


def discard(number: int, folder: StateFolder, ledger: Ledger) -> int:
    """Delete the updates kept from failed round `number`. Returns how many.

    Raises UnknownRoundError if the round did not fail, StorageError.
    """
    with ledger.writing() as session:
        round_ = session.get(Round, number)
        if round_ is None or round_.ending != "failed":
            raise UnknownRoundError(f"round {number}: expected a failed round; see the report")
        kept = queries.kept_updates(session, number)
        for update in kept:
            update.state = "discarded"
        session.flush()
        needed = queries.needed_update_hashes(session)
    folder.delete_updates_except(needed)
    sweeping.delete_updates(folder, kept)
    return len(kept)


def roll_back(folder: StateFolder, ledger: Ledger, settings: ServerSettings | None, number: int) -> None:
    """End the open round without a result and open the next one on the model of round `number`.

    settings: of the next round; None: those of the round that was open.
    Raises UnknownRoundError for a round that does not exist or whose model file was deleted, RewoundNoiseError if that
    would undo noise of dp-ftrl.
    """
    with ledger.writing() as session:
        now, rounds = ledger.clock(), queries.all_rounds(session)
        results = {0: rounds[0].base_sha256} | {round_.number: round_.result_sha256 for round_ in rounds}
        sha256 = results.get(number)
        if sha256 is None:
            raise UnknownRoundError(
                f"round {number}: expected a closed round with a model, or 0 for the exported model; see the report"
            )
        open_ = opening.expect_open_round(ledger, session)
        noise_runs.refuse_rewind(session, open_, sha256)
        if not folder.has(folder.model(sha256)):
            raise UnknownRoundError(f"round {number}: its model file {sha256[:12]}… was deleted; see `models_kept`")
        discarded = queries.accepted_updates(session, open_.number)
        for update in discarded:
            update.state, update.reason = "discarded", f"rolled back to round {number}"
        for round_ in rounds:
            if round_.number > number and round_.rolled_back_at is None:
                round_.rolled_back_at = now
        open_.closed_at, open_.ending, open_.noise_half = now, "rollback", None
        session.flush()
        opening.add_round(session, now, open_.number + 1, sha256, settings or open_)
    sweeping.delete_updates(folder, discarded)
