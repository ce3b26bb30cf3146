"""Secrets that users' phones trained on, and a membership test, on the last model of simulations side by side."""

from functools import partial
from typing import Any

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Count, Record
from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers.kinds.simulated import settings_of
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.records import Estimate

FACT = "fact"
LEAST_OTHERS = 100  # with fewer none of them may be a false positive


class Run(Record, frozen=True):
    """One simulation: its settings that differ from the others'."""

    simulation: dict[str, Any] = field(default_factory=dict)
    strategy: dict[str, Any] = field(default_factory=dict)


class Settings(Record, frozen=True):
    """simulation: SimulationSettings by name, for all runs; canaries: CanarySettings by name; membership_users: the
    most users on each side of the membership test; runs: by row.
    """

    simulation: dict[str, Any]
    runs: dict[str, Run]
    canaries: dict[str, Any]
    membership_users: Count = 100


def run(settings: Settings, context: Context) -> Outcome:
    """Simulate and attack each run; a run that was attacked before is not simulated again.

    A run has a row for its membership test, and one for the secrets with each number of insertions.
    """
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {}
    for row, one in settings.runs.items():
        figures = context.measure_once(row, partial(_attack, settings, row, one, context))
        for name, value in figures.items():
            part, _, figure = name.rpartition(": ")
            if part == FACT:
                facts[f"{row}: {figure}"] = value
            else:
                rows.setdefault(f"{row}, {part}" if part else row, {})[figure] = value
    return Outcome(rows, facts)


def _attack(settings: Settings, row: str, one: Run, context: Context) -> dict[str, float]:
    chosen = settings.simulation | one.simulation | {"seed": context.seed, "test_users": 0}
    simulation = settings_of(chosen, one.strategy)
    try:
        insertions = tuple(settings.canaries["insertions"])
        canaries = phonograd.CanarySettings(**settings.canaries | {"insertions": insertions})
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactsError(f"settings of an attack: {error}") from error
    record = phonograd.simulate_attacks(
        context.input("artifacts"),
        context.input("users"),
        context.folder(row),
        simulation,
        phonograd.AttackSettings(canaries, settings.membership_users),
        rehearsal=context.input("rehearsal"),
        workers=context.workers,
        progress=lambda done, total, _: context.progress(done, total, row),
    )
    return _figures(record)


def _figures(record: phonograd.AttackRecord) -> dict[str, float]:
    assert record.canaries is not None
    assert record.membership is not None
    users = record.membership
    figures = _with_interval("AUC", users.auc)
    if users.others >= LEAST_OTHERS:
        figures |= _with_interval("TPR at 1 %", users.tpr)
    figures |= {"members' loss fell by": users.member_score, "others' loss fell by": users.other_score}
    for kind in record.canaries.changes:
        own = {"exposure before": kind.before, "exposure": kind.exposure, "change": kind.change}
        if kind.standard_error is not None:
            own["standard error"] = kind.standard_error
        if kind.above_controls is not None:
            own |= _with_interval("change above controls", kind.above_controls)
        part = f"{kind.insertions} times" if kind.insertions else "controls"
        figures |= {f"{part}: {name}": value for name, value in own.items()}
    facts: dict[str, float] = {"secrets of the form": record.canaries.space, "members": users.members}
    facts |= {"others": users.others, "rounds": record.rounds}
    facts |= {f"secrets, {kind.insertions} times": kind.secrets for kind in record.canaries.changes}
    if record.epsilon is not None:
        facts["epsilon"] = record.epsilon
    return figures | {f"{FACT}: {name}": value for name, value in facts.items()}


def _with_interval(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}, low": estimate.low, f"{name}, high": estimate.high}
