"""Rolling back to the model of an earlier round."""

from collections.abc import Sequence

from phonograd.server_agg.refusals import UnknownRoundError
from phonograd.server_agg.rounds import sweeping
from phonograd.server_agg.rounds.opening import add_round, add_round_like, expect_open_round
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Round


def roll_back(folder: StateFolder, ledger: Ledger, settings: ServerSettings | None, number: int) -> None:
    """End the open round without a result and open the next one on the model of round `number`.

    settings: of the next round; None: those of the round that was open.
    Raises UnknownRoundError for a round that does not exist or whose model file was deleted.
    """
    with ledger.writing() as session:
        now, rounds = ledger.clock(), queries.all_rounds(session)
        sha256 = _result_of(rounds, number)
        if sha256 is None:
            raise UnknownRoundError(
                f"round {number}: expected a closed round with a model, or 0 for the exported model; see the report"
            )
        if not folder.has(folder.model(sha256)):
            raise UnknownRoundError(f"round {number}: its model file {sha256[:12]}… was deleted; see `models_kept`")
        open_ = expect_open_round(ledger, session)
        discarded = queries.accepted_updates(session, open_.number)
        for update in discarded:
            update.state, update.reason = "discarded", f"rolled back to round {number}"
        for round_ in rounds:
            if round_.number > number and round_.rolled_back_at is None:
                round_.rolled_back_at = now
        open_.closed_at, open_.ending = now, "rollback"
        session.flush()
        if settings is None:
            add_round_like(session, now, sha256, open_)
        else:
            add_round(session, now, open_.number + 1, sha256, settings)
    sweeping.delete_updates(folder, discarded)


def _result_of(rounds: Sequence[Round], number: int) -> str | None:
    if number == 0:
        return rounds[0].base_sha256
    return next((round_.result_sha256 for round_ in rounds if round_.number == number), None)
