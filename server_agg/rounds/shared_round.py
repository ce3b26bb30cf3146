"""The open round of several servers that share a ledger: what a server must not take from its own memory.

- Another one may have opened a round, or changed it: the ledger is read, in the transaction that counts.
- The transaction that accepts the last update marks the round as closing; then it takes no more, at any server.
- The server with the closing lock makes the model, of the sums of all (`partial_sums`). A killed server loses the
  lock, and the next one makes the same model.
"""

import contextlib

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.refusals import RoundClosingError
from phonograd.server_agg.rounds import opening, partial_sums
from phonograd.server_agg.rounds.aggregator import CLOSING_SECONDS
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.rounds.loaded_round import RoundSnapshot, is_same_round
from phonograd.server_agg.storage.tables import Model, Round


class SharedRound(LiveRound):
    """See above."""

    def _retry_seconds(self, closing: bool) -> float:
        return CLOSING_SECONDS if closing else self.settings.retry_seconds

    def _snapshot_in(self, session: Session) -> RoundSnapshot:
        known = self._snapshot
        return known if known.has_all_of(opening.expect_open_round(self.ledger, session)) else self._read(session)

    def _read_phones(self, session: Session, number: int) -> set[str] | None:
        """Nobody knows: others accept some too."""

    def _read_with_one_more(self, session: Session) -> RoundSnapshot:
        seen, aggregator = self._read(session), self.aggregator
        if seen.open_round.accepted < aggregator.rules.clients_per_round or aggregator.settings.private:
            return seen
        # The round takes no more updates; whichever server comes first makes its model.
        session.get_one(Round, aggregator.row.number).closing_at = self.ledger.clock()
        session.flush()
        return self._read(session)

    def refresh(self) -> None:
        """Since the last tick."""
        self.publish()

    def follow(self) -> None:
        """Load the round that the ledger has, if it is another one."""
        self.publish()
        if not is_same_round(self._snapshot.admission.row, self.aggregator.row):
            self.load()

    def sum_stored(self) -> None:
        """Not needed: a sum that a server lost is folded again by the one that closes the round."""

    def close(self) -> None:
        """Give the sum away first, if it can be; else the server that closes the round folds the updates again."""
        if not self.closed:
            with contextlib.suppress(StorageError):
                partial_sums.share(self.aggregator, self.folder, self.ledger)
        super().close()

    def _check_still_open(self, session: Session, phone: str) -> None:
        """Refuse what another server has made late since the update was admitted."""
        admission = self.admission(session)
        if admission.closing or self._row_if_same(session) is None:
            number = self.aggregator.row.number
            raise RoundClosingError(f"round {number}: closing; send the update again", CLOSING_SECONDS)
        admission.check_duplicate(session, phone)

    def _row_if_same(self, session: Session) -> Round | None:
        """The open round's row, within a transaction; None if it is no longer the one that was loaded.

        Other servers end rounds, sample their phones, and start with other settings.
        """
        row = opening.expect_open_round(self.ledger, session)
        return row if is_same_round(row, self.aggregator.row) else None

    def _end_due(self) -> None:
        """End the round under the closing lock; while another server has that, give it this one's sum."""
        with self.ledger.closing_lock() as mine:
            if mine:
                self._end_locked()
                return
        if self.open_round.closing is not None:
            partial_sums.share(self.aggregator, self.folder, self.ledger)

    def _end_locked(self) -> None:
        self.follow()  # another server may have ended it
        if self.open_round.closing is None:
            if self.find_ending() is None:
                return
            with self.ledger.writing() as session:
                row = self._row_if_same(session)
                if row is None:
                    return  # rolled back, or a server that started gave it other settings
                row.closing_at = row.closing_at or self.ledger.clock()
            self.follow()
            if self.open_round.closing is None:
                return  # this server lost the lock, and another one ended the round
        self.close_round()

    def _make_model(self) -> Model | None:
        partial_sums.merge(self.aggregator, self.folder, self.ledger)
        return super()._make_model()
