"""When a round ends, and how: its model is published, or it failed; then the next one is the current round."""

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.rounds import closing, failed_rounds, log_events
from phonograd.server_agg.rounds.current_round import CurrentRound
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.tables import Ending


def end_if_complete(current: CurrentRound) -> None:
    """End the open round if all its updates are here or its deadline has passed, and open the next one.

    Raises StorageError if the disk refuses, which costs the accepted updates nothing, or once the server is stopping.
    """
    current.check_running()
    current.load_if_needed()
    aggregator, ending = current.aggregator, ending_of(current)
    if ending is None:
        return
    try:
        closing.close_round(aggregator, ending, current.folder, current.ledger, current.settings)
    except Exception as error:
        _fail(current, error)
        return
    current.load()
    log_events.round_closed(aggregator.row.number, ending, current.open_round.base_sha256)


def ending_of(current: CurrentRound) -> Ending | None:
    """Why the open round ends now; None if it does not."""
    aggregator, accepted = current.aggregator, current.open_round.accepted
    private = aggregator.settings.private
    if private:
        with current.ledger.reading() as session:
            drawn = len(queries.selected_phones(session, aggregator.row.number))
        if 0 < drawn == accepted:
            return "full"
    elif accepted >= aggregator.rules.clients_per_round:
        return "full"
    over = aggregator.closes_at is not None and current.ledger.clock() >= aggregator.closes_at
    halted = current.open_round.halted is not None
    enough = accepted >= max(aggregator.rules.min_clients, aggregator.strategy.min_updates)
    # A private round ends in any case: another draw, another chance.
    return "deadline" if over and not halted and (enough or private) else None


def _fail(current: CurrentRound, error: Exception) -> None:
    """End the round as failed. Raises StorageError if it is the disk that refuses: that is tried again."""
    if isinstance(error, StorageError):
        raise error
    if failed_rounds.refused_by_the_disk(error):
        raise StorageError(str(error)) from error
    row = current.aggregator.row
    reason = failed_rounds.fail_round(row, error, current.ledger, current.settings)
    log_events.round_failed(row.number, reason, error)
    current.load()
