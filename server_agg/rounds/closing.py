"""Closing a round: write its model, then record the result and open the next round in one transaction."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.aggregation.model_writer import model_metadata, write_model
from phonograd.server_agg.rounds import opening, privacy, publication
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.stored_update import StoredUpdate
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Ending, Model, Round


def close_round(
    aggregator: RoundAggregator, ending: Ending, folder: StateFolder, ledger: Ledger, settings: ServerSettings
) -> None:
    """Write the model and end the round. A round without updates keeps its model, unless its strategy is private.

    A private round publishes a noisy model even without updates, so that nobody can tell whether a phone took part.

    Writing the model again gives the same bits, so a crash in between does no harm. Raises StorageError, or any error
    of the aggregation; the round then stays open.
    """
    updates = aggregator.stored()
    model = _new_model(aggregator, updates, folder, ledger) if updates or aggregator.settings.private else None
    record_model(aggregator.row, ending, model, ledger, settings)


def record_model(round_: Round, ending: Ending, model: Model | None, ledger: Ledger, settings: ServerSettings) -> None:
    """End the round with `model`, whose file is in place, and open the next one. None: its base model."""
    result = round_.base_sha256 if model is None else model.sha256
    with end_round(round_, ending, ledger) as (session, row):
        if model is not None and session.get(Model, model.sha256) is None:
            session.add(model)
            session.flush()  # the rounds refer to it
        row.result_sha256 = result
        session.flush()
        opening.add_round(session, ledger.clock(), row.number + 1, result, settings)


@contextlib.contextmanager
def end_round(round_: Round, ending: Ending, ledger: Ledger) -> Iterator[tuple[Session, Round]]:
    """The transaction that ends a round, with its row; also records the privacy spent."""
    with ledger.reading() as session:  # accounting takes a while: do it without the write lock
        spent = privacy.privacy_spent_including(session, round_)
    with ledger.writing() as session:
        row = session.get_one(Round, round_.number)
        if row.closed_at is not None:  # by a server that took over when this one lost its connection
            raise StorageError(f"round {round_.number}: another server ended it")
        row.closed_at, row.ending = ledger.clock(), ending
        if spent is not None:
            row.epsilon, row.epsilon_rdp = _finite(spent.epsilon), _finite(spent.epsilon_rdp)
        yield session, row


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


def _new_model(
    aggregator: RoundAggregator, updates: Sequence[StoredUpdate], folder: StateFolder, ledger: Ledger
) -> Model:
    row, draft, state_draft = aggregator.row, folder.new_draft(), folder.new_draft()
    try:
        written, state = write_model(
            aggregator.settings,
            aggregator.aggregation,
            [update.client_update for update in updates],
            aggregator.base,
            _optimizer_state(row.base_sha256, folder, ledger),
            draft,
            state_draft,
            model_metadata(row.number, row.base_sha256),
        )
        with publication.published(row, aggregator.base.path, draft, written, folder, ledger) as published:
            if state is not None:
                folder.move_into_place(state_draft, folder.optimizer(state.sha256))
            return published.move_into_place(folder, ledger.clock(), None if state is None else state.sha256)
    finally:
        draft.unlink(missing_ok=True)
        state_draft.unlink(missing_ok=True)


def _optimizer_state(base_sha256: str, folder: StateFolder, ledger: Ledger) -> Path | None:
    with ledger.reading() as session:
        sha256 = session.get_one(Model, base_sha256).optimizer_sha256
    return None if sha256 is None else folder.checked(folder.optimizer(sha256))
