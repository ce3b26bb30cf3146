"""Secrets that users' phones trained on, and a membership test, on the last model of simulations side by side."""

from functools import partial
from typing import Any

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Count, Record
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import Estimate

LEAST_OTHERS = 100  # with fewer none of them may be a false positive


class Run(Record, frozen=True):
    """One simulation: its settings that differ from the others'."""

    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; membership_users: the most users on each side of the
    membership test; runs: by row.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    canaries: phonograd.CanarySettings
    membership_users: Count = 100


def run(settings: Settings, context: Context) -> Outcome:
    """Simulate and attack each run; a run that was attacked before is not simulated again.

    A run has a row for its membership test, and one for the secrets with each number of insertions.
    """
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {}
    for row, one in settings.runs.items():
        found = context.measure_once(row, partial(_attack, settings, row, one, context))
        rows |= found["rows"]
        facts |= found["facts"]
    return Outcome(rows, facts)


def _attack(settings: Settings, row: str, one: Run, context: Context) -> dict[str, dict[str, Any]]:
    chosen = settings.simulation | one.simulation | {"seed": context.seed, "test_users": 0}
    record = phonograd.simulate_attacks(
        context.input("artifacts"),
        context.input("users"),
        context.folder(row),
        settings_of(chosen, one.strategy),
        phonograd.AttackSettings(settings.canaries, settings.membership_users),
        rehearsal=context.input("rehearsal"),
        workers=context.workers,
        progress=lambda done, total, _: context.progress(done, total, row),
    )
    return _figures(row, record)


def _figures(row: str, record: phonograd.AttackRecord) -> dict[str, dict[str, Any]]:
    assert record.canaries is not None
    assert record.membership is not None
    users, secrets = record.membership, record.canaries
    figures = _with_interval("AUC", users.auc)
    if users.others >= LEAST_OTHERS:
        figures |= _with_interval("TPR at 1 %", users.tpr)
    figures |= {"members' loss fell by": users.member_score, "others' loss fell by": users.other_score}
    rows = {row: figures}
    for kind in secrets.changes:
        own = {"exposure before": kind.before, "exposure": kind.exposure, "change": kind.change}
        if kind.standard_error is not None:
            own["standard error"] = kind.standard_error
        if kind.above_controls is not None:
            own |= _with_interval("change above controls", kind.above_controls)
        rows[f"{row}, {kind.insertions} times" if kind.insertions else f"{row}, controls"] = own
    facts: dict[str, float] = {"secrets of the form": secrets.space, "members": users.members}
    facts |= {"others": users.others, "rounds": record.rounds}
    facts |= {f"secrets, {kind.insertions} times": kind.secrets for kind in secrets.changes}
    if record.epsilon is not None:
        facts["epsilon"] = record.epsilon
    return {"rows": rows, "facts": {f"{row}: {name}": value for name, value in facts.items()}}


def _with_interval(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}, low": estimate.low, f"{name}, high": estimate.high}
