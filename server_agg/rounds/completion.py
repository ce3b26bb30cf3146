"""Whether the open round is complete, and if so, closing it or recording its failure."""

from phonograd.server_agg.rounds import closing, failed_rounds, log_events, opening
from phonograd.server_agg.rounds.current_round import LiveRound
from phonograd.server_agg.rounds.slow_closing import SlowClosing
from phonograd.server_agg.storage.tables import Ending


def end_if_complete(current: LiveRound, slow: SlowClosing) -> None:
    """End the open round if it has all its updates or its deadline has passed, and open the next one.

    If its model takes minutes, the round is closing until `slow` has made it. Raises StorageError if the disk fails
    (the accepted updates stay as they are) or if the server is stopping.
    """
    current.check_running()
    current.load_if_needed()
    current.follow()
    closing_now = current.open_round.closing is not None
    if current.ledger.shared:
        if closing_now or ending_of(current) is not None:
            _end_shared(current)
        return
    if closing_now:
        slow.resume()
        return
    ending = ending_of(current)
    if ending is None:
        return
    if current.aggregator.settings.slow:
        slow.begin()
        return
    _end(current, ending)


def _end_shared(current: LiveRound) -> None:
    """End a round that other servers may end too: under the closing lock, after they take no more updates for it.

    A server that is killed meanwhile loses the lock, and the next one folds the same updates to the same bits.
    """
    with current.ledger.closing_lock() as mine:
        if not mine:
            return
        current.follow()  # another server may have ended it
        if current.open_round.closing is None:
            if ending_of(current) is None:
                return
            with current.ledger.writing() as session:
                row = opening.expect_open_round(current.ledger, session)
                if row.number != current.aggregator.row.number:
                    return  # rolled back
                row.closing_at = row.closing_at or current.ledger.clock()
            current.follow()
        current.aggregator.invalidate()
        full = current.open_round.accepted >= current.aggregator.rules.clients_per_round
        _end(current, "full" if full else "deadline")


def _end(current: LiveRound, ending: Ending) -> None:
    aggregator = current.aggregator
    try:
        closing.close_round(aggregator, ending, current.folder, current.ledger, current.settings)
    except Exception as error:
        failed_rounds.fail_or_retry(current, error)
        return
    current.load_after_end()
    log_events.round_closed(aggregator.row.number, ending, current.open_round.base_sha256)


def ending_of(current: LiveRound) -> Ending | None:
    """Why the open round should end now; None if it should not."""
    aggregator, accepted = current.aggregator, current.open_round.accepted
    over = aggregator.closes_at is not None and current.ledger.clock() >= aggregator.closes_at
    if aggregator.settings.private:
        # Neither earlier nor later, whoever came: when a model appears must not depend on the phones. The next round
        # samples others.
        return "deadline" if over and current.open_round.halted is None else None
    if accepted >= aggregator.rules.clients_per_round:
        return "full"
    enough = accepted >= max(aggregator.rules.min_clients, aggregator.strategy.min_updates)
    return "deadline" if over and enough else None
