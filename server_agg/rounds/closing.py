"""Closing a round: its model written, and in one transaction the round over, the model known, the next round open."""

from collections.abc import Sequence
from dataclasses import dataclass

from device_runtime.tensor_file import TensorFile
from server_agg.rounds import drawing, opening
from server_agg.rounds.stored import StoredUpdate
from server_agg.settings import ServerSettings
from server_agg.storage.ledger import Ledger
from server_agg.storage.state_folder import StateFolder
from server_agg.storage.tables import Ending, Model, Round
from server_agg.strategies import Aggregation, StrategySettings, write_model


@dataclass(frozen=True)
class RoundToClose:
    """A round that is due, its updates, and why it is due."""

    round: Round
    strategy: StrategySettings
    aggregation: Aggregation
    updates: Sequence[StoredUpdate]
    ending: Ending


def close_round(
    due: RoundToClose, folder: StateFolder, ledger: Ledger, base: TensorFile, settings: ServerSettings
) -> None:
    """Write the model and end the round; a round without updates leaves the model as it was.

    The model is the same to the bit whenever it is written again: a crash in between costs nothing. Raises
    StorageError; then the round is open as before.
    """
    model = _new_model(due, folder, ledger, base) if due.updates else None
    result = due.round.base_sha256 if model is None else model.sha256
    with ledger.reading() as session:  # composing takes a moment, in which nobody else should wait to write
        spent = drawing.spent_with(session, due.round)
    with ledger.writing() as session:
        if model is not None and session.get(Model, model.sha256) is None:
            session.add(model)
            session.flush()  # the rounds refer to it
        row = session.get_one(Round, due.round.number)
        row.result_sha256, row.closed_at, row.ending = result, ledger.clock(), due.ending
        if spent is not None:
            row.epsilon, row.epsilon_rdp = spent.epsilon, spent.epsilon_rdp
        row.noise_key = None  # from here on nobody can tell the noise from the model
        session.flush()
        opening.add_round(session, ledger.clock(), due.round.number + 1, result, settings)


def _new_model(due: RoundToClose, folder: StateFolder, ledger: Ledger, base: TensorFile) -> Model:
    parent = due.round.base_sha256
    # The metadata hold no time: the same updates give the same file, to the bit.
    metadata = {"round": str(due.round.number), "parent_sha256": parent}
    with ledger.reading() as session:
        before = session.get_one(Model, parent).optimizer_sha256
    draft, state_draft = folder.new_draft(), folder.new_draft()
    members = [update.member for update in due.updates]
    try:
        old_state = None if before is None else TensorFile(folder.optimizer(before))
        try:
            written, state = write_model(
                due.strategy, due.aggregation, members, base, old_state, draft, state_draft, metadata
            )
        finally:
            if old_state is not None:
                old_state.close()
        folder.move_in(draft, folder.model(written.sha256))
        if state is not None:
            folder.move_in(state_draft, folder.optimizer(state.sha256))
    finally:
        draft.unlink(missing_ok=True)
        state_draft.unlink(missing_ok=True)
    return Model(
        sha256=written.sha256,
        round=due.round.number,
        parent_sha256=parent,
        optimizer_sha256=None if state is None else state.sha256,
        bytes=written.nbytes,
        created_at=ledger.clock(),
    )
