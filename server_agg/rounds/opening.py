"""Opening: a state folder, from artifacts or as it was left; the next round; a round gone back to."""

import logging
from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import ArtifactsError, StorageError, WeightsError
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, check_finite, check_specs, tile_ranges
from phonograd.server_agg.aggregation.privacy.accountant import require_accounting
from phonograd.server_agg.aggregation.strategies import StrategySettings
from phonograd.server_agg.refusals import UnknownRoundError
from phonograd.server_agg.rounds import privacy
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round

log = logging.getLogger(__name__)


def open_state(folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings) -> None:
    """Bring folder and ledger to where a round is open.

    Raises ArtifactsError if the state began with other artifacts, WeightsError for a damaged model, StorageError,
    MissingExtraError for a private strategy without dp-accounting.
    """
    if settings.strategy.private:
        require_accounting()
    with ledger.reading() as session:
        new = queries.open_round(session) is None
    if new:
        _begin(folder, ledger, artifacts, settings)
    _check_artifacts(folder, ledger, artifacts)
    _apply_settings(ledger, settings)


def expect_open_round(ledger: Ledger, session: Session) -> Round:
    """The open round. Raises StorageError if there is none, which only damage can bring about."""
    round_ = queries.open_round(session)
    if round_ is None:
        raise StorageError(f"{ledger.path}: an open round expected, found none; restore the state folder")
    return round_


def add_round(session: Session, now: float, number: int, base_sha256: str, settings: ServerSettings) -> Round:
    """Open round `number` within the caller's transaction, under today's settings."""
    return _add_round(session, now, number, base_sha256, settings.rules.to_json(), settings.strategy.to_json())


def _add_round(session: Session, now: float, number: int, base_sha256: str, rules: str, strategy: str) -> Round:
    round_ = Round(
        number=number,
        base_sha256=base_sha256,
        rules=rules,
        strategy=strategy,
        population=0,
        opened_at=now,
    )
    session.add(round_)
    session.flush()
    privacy.draw(session, round_, now)
    return round_


def roll_back(folder: StateFolder, ledger: Ledger, settings: ServerSettings | None, number: int) -> None:
    """End the open round without a result and open the next one on the model that round `number` ended with.

    settings: the next round's; None: those of the round that was open.
    Raises UnknownRoundError if there is no such round or its model is not kept.
    """
    with ledger.writing() as session:
        now, rounds = ledger.clock(), queries.all_rounds(session)
        sha256 = _result_of(rounds, number)
        if sha256 is None:
            raise UnknownRoundError(
                f"round {number}: a closed round that made a model, or 0 for the exported one, expected; see the report"
            )
        if not folder.model(sha256).is_file():
            raise UnknownRoundError(f"round {number}: its model {sha256[:12]}… is no longer kept; see --models-kept")
        open_ = expect_open_round(ledger, session)
        for update in queries.accepted_updates(session, open_.number):
            update.state, update.reason = "discarded", f"the server went back to round {number}"
        for round_ in rounds:
            if round_.number > number and round_.rolled_back_at is None:
                round_.rolled_back_at = now
        open_.closed_at, open_.ending = now, "rollback"
        session.flush()
        if settings is None:
            _add_round(session, now, open_.number + 1, sha256, open_.rules, open_.strategy)
        else:
            add_round(session, now, open_.number + 1, sha256, settings)


def prune_models(folder: StateFolder, models: Sequence[Model], needed: Collection[str], kept: int | None) -> None:
    """Delete the files of all models but the first, the newest `kept` (None: all) and those `needed`.

    The server optimiser's states go with their models.
    """
    if kept is not None:
        folder.keep_models({model.sha256 for model in (models[0], *models[-kept:])} | set(needed))
    states = {str(model.optimizer_sha256) for model in models if folder.model(model.sha256).is_file()}
    folder.keep_optimizers(states)


def _result_of(rounds: Sequence[Round], number: int) -> str | None:
    if number == 0:
        return rounds[0].base_sha256
    return next((round_.result_sha256 for round_ in rounds if round_.number == number), None)


def _begin(folder: StateFolder, ledger: Ledger, artifacts: Artifacts, settings: ServerSettings) -> None:
    sha256 = artifacts.weights_sha256
    with TensorFile(artifacts.path(WEIGHTS)) as model:
        for name, spec in model.specs.items():
            for start, stop in tile_ranges(spec.elements):
                check_finite(str(model.path), name, model.read_range(name, start, stop))
    nbytes = folder.copy_model(artifacts.path(WEIGHTS), sha256)
    now = ledger.clock()
    with ledger.writing() as session:
        session.add(Model(sha256=sha256, round=0, bytes=nbytes, created_at=now))
        session.flush()  # the round refers to it
        add_round(session, now, 1, sha256, settings)


def _check_artifacts(folder: StateFolder, ledger: Ledger, artifacts: Artifacts) -> None:
    with ledger.reading() as session:
        base_sha256 = expect_open_round(ledger, session).base_sha256
        known = session.get(Model, artifacts.weights_sha256) is not None
    with TensorFile(artifacts.path(WEIGHTS)) as model, TensorFile(folder.model(base_sha256)) as base:
        try:
            check_specs(f"state {folder.root}", base.specs, model.specs.values())
        except WeightsError as error:
            raise ArtifactsError(
                f"{error}; the state belongs to other artifacts than {artifacts.folder}: choose another --state"
            ) from error
    if not known:
        raise ArtifactsError(
            f"state {folder.root}: one of its models expected in {artifacts.folder}, found "
            f"{artifacts.weights_sha256[:12]}…, which it never sent; choose another --state, or the artifacts it began "
            "with"
        )


def _apply_settings(ledger: Ledger, settings: ServerSettings) -> None:
    """Give the open round today's settings, unless it accepted updates under its own."""
    with ledger.writing() as session:
        round_ = expect_open_round(ledger, session)
        same = StrategySettings.from_json(round_.strategy) == settings.strategy
        if same and RoundRules.from_json(round_.rules) == settings.rules:
            return
        if queries.count_updates(session, round_.number, "accepted") == 0:
            round_.rules, round_.strategy = settings.rules.to_json(), settings.strategy.to_json()
            if not same:  # else a draw at one probability would be accounted at another
                privacy.draw_anew(session, round_, ledger.clock())
            return
    log.warning(
        "round %d has updates already and keeps its settings until it closes: %s %s",
        round_.number,
        round_.rules,
        round_.strategy,
    )
