"""The run of dp-ftrl in the ledger: what is fixed before its first round, and how long phones rest.

A state folder has one run at most. Each round of it has a step, from 1; one that failed or was rolled back released
nothing, so the next round has the same step again. The mathematics is in aggregation/correlation.
"""

import hashlib
import json
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.base.errors import StorageError, UsageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.correlation.run import RUN, Run, begin_run, run_in
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.server_agg.refusals import RewoundNoiseError
from phonograd.server_agg.storage import cohorts, queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Round


def run_of(round_: Round) -> Run | None:
    """The run that a round is of; None if of none. Raises StorageError for a damaged one."""
    try:
        return None if round_.run is None else run_in({RUN: round_.run}, f"round {round_.number}")
    except WeightsError as error:
        raise StorageError(f"{error}: it is in the ledger") from error


def required_run(ledger: Ledger, settings: StrategySettings, base: Path) -> str | None:
    """The run, as text, that the ledger has at a start, or a new one; None for another strategy.

    base: the model that a new run begins with. Raises UsageError, naming the setting, for others than the ledger's run
    has, and for a run that can't begin now; MissingExtraError without SciPy.
    """
    with ledger.reading() as session:
        text, open_ = queries.last_run(session), queries.open_round(session)
        busy = open_ is not None and (
            cohorts.has_messages(session, open_.number) or queries.count_updates(session, open_.number, "accepted")
        )
    if text is not None:
        _require(text, settings)
        return text
    if settings.strategy != FTRL:
        return None
    if busy and open_ is not None:
        raise UsageError(
            f"`strategy` is {FTRL!r}, but round {open_.number} has updates of another strategy; start with that one, "
            "and change when the round is closed, or choose another `state` folder"
        )
    with TensorFile(base) as model:
        if RUN in model.metadata:
            raise UsageError(
                f"{base}: it is a model of a run of {FTRL}, whose epsilon a second run would add to, and nothing "
                "would account for that; begin with the model that the first run began with"
            )
    return begin_run(settings).text


def _require(text: str, settings: StrategySettings) -> None:
    if settings.strategy != FTRL:
        raise UsageError(
            f"`strategy` is {settings.strategy!r}, expected {FTRL!r}: the state folder has a run of it, and what other "
            "rounds publish would not be in its epsilon; keep it, or choose another `state` folder"
        )
    try:
        run = run_in({RUN: text}, "the ledger")
        assert run is not None
    except WeightsError as error:
        raise StorageError(str(error)) from error
    try:
        run.require(settings)
    except WeightsError as error:
        raise UsageError(str(error)) from error


def set_step(session: Session, round_: Round, run: str | None = None) -> None:
    """Give a new round its run and step, within the caller's transaction. run: a new one; None: the ledger's.

    Raises StorageError for a round with other settings than the ledger's run, which another server may have begun.
    """
    settings, known = StrategySettings.from_json(round_.strategy), queries.last_run(session)
    if known is not None:
        try:
            _require(known, settings)
        except UsageError as error:
            raise StorageError(f"round {round_.number}: {error}") from error
    if settings.strategy != FTRL:
        round_.run = round_.run_step = None
        return
    round_.run = known or run
    if round_.run is None:
        raise StorageError(f"round {round_.number}: expected a run of {FTRL} in the ledger, found none; restore it")
    round_.run_step = 1 + queries.steps_released(session)


def run_for_phones(round_: Round) -> str | None:
    """What a phone's own count of its rounds needs, as JSON that the native library reads; None if it is of no run."""
    run = run_of(round_)
    if run is None:
        return None
    of_run = hashlib.sha256(run.text.encode()).hexdigest()
    rests = {"min_separation": run.min_separation, "max_participations": run.max_participations}
    return json.dumps({"run": of_run, "step": round_.run_step, **rests})


def over(round_: Round) -> str | None:
    """Why a round of a run takes no phones; None if it does."""
    run = run_of(round_)
    if run is None or (round_.run_step or 0) <= run.planned_rounds:
        return None
    return (
        f"round {round_.number}: all {run.planned_rounds} rounds of the run of {FTRL} are over (`planned_rounds`); the "
        "model is final"
    )


def goes_on(round_: Round) -> bool:
    """Whether another round of a run follows, which needs the noise's memory."""
    run = run_of(round_)
    return run is not None and (round_.run_step or 0) < run.planned_rounds


def refuse_rewind(session: Session, open_: Round, sha256: str) -> None:
    """Raise RewoundNoiseError for a rollback to another model than the open round's, once the run released one.

    With the older model's buffers, rows of noise would be used for a second release, which the run's epsilon does not
    count. With the newest ones, noise would be taken back that the older model does not have, and so be added.
    """
    if open_.run is None or not (steps := queries.steps_released(session)) or sha256 == open_.base_sha256:
        return
    raise RewoundNoiseError(
        f"round {open_.number}: {steps} rounds of its run of {FTRL} have released noise, which later noise takes back; "
        "from an earlier model it would be another release, that epsilon does not count; go on, or start again in "
        "another `state` folder, whose epsilon adds to this one's"
    )
