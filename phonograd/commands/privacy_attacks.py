"""`phonograd privacy canaries`, `membership` and `audit`: what someone who reads the models learns about users."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from phonograd.api.simulating import simulate_attacks, simulate_audit
from phonograd.commands.configured import config_options
from phonograd.commands.paths import OUT_FOLDER
from phonograd.commands.stopping import stop_signals
from phonograd.commands.study import simulation_from
from phonograd.config.simulate import AUDIT, CANARIES, MEMBERSHIP, Output, Study
from phonograd.config.values import Config
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.base.documents import Record, document_of
from phonograd.device_runtime.base.settings import Settings
from phonograd.simulation.attacks.audit import AuditSettings
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.attacks.run import AttackSettings
from phonograd.simulation.records import ExposureChange

Found = TypeVar("Found", bound=Record)


@click.command()
@config_options(CANARIES, out=OUT_FOLDER)
@output_options
def canaries(console: Console, config: Config) -> None:
    """Plant secrets in users' texts, simulate rounds, and measure what the model, from ARTIFACTS, knows of them.

    A secret is a message, such as "my secret is A B C". Its exposure is log2 of the number of such secrets, minus log2
    of its rank among them by likelihood (Carlini et al. 2019): on average 1.4 bits if the model knows nothing of it.
    Training changes the exposure of what nobody wrote too, so compare with the controls. Intervals are 95 %, by
    bootstrap over secrets.
    """
    settings = AttackSettings(config.take(CanarySettings), membership_users=0)
    record, document = _attack(console, config, simulate_attacks, settings)
    assert record.canaries is not None
    changes = [_change_row(kind) for kind in record.canaries.changes]
    rows = [
        {
            "user": secret.user,
            "insertions": secret.insertions,
            "rank": secret.rank,
            "exposure, bits": secret.exposure,
            "extrapolated": secret.extrapolated,
            "before": secret.before,
        }
        for secret in record.canaries.secrets
        if secret.user is not None
    ]
    title = f"Exposure among {record.canaries.space:,} secrets"
    console.result(document, (f"{title}, means in bits", changes), (title, rows))


def _change_row(kind: ExposureChange) -> dict[str, object]:
    above = kind.above_controls
    return {
        "insertions": kind.insertions or "0, controls",
        "secrets": kind.secrets,
        "before": kind.before,
        "exposure": kind.exposure,
        "change": kind.change,
        "standard error": kind.standard_error,
        "change above controls": above and above.value,
        "low": above and above.low,
        "high": above and above.high,
    }


@click.command()
@config_options(MEMBERSHIP, out=OUT_FOLDER)
@output_options
def membership(console: Console, config: Config) -> None:
    """Simulate rounds of the model in ARTIFACTS, and tell from the result who took part.

    A user's score is how much likelier the last model makes its text than the first model. AUC is the chance that it is
    higher for one who took part than for one who did not; 0.5 is guessing. Intervals are 95 %, by bootstrap over users.
    """
    settings = config.take(AttackSettings, canaries=None)
    record, document = _attack(console, config, simulate_attacks, settings)
    result = record.membership
    assert result is not None
    rows = [
        {"figure": name, "value": one.value, "low": one.low, "high": one.high}
        for name, one in (("AUC", result.auc), ("true positives at 1 % false", result.tpr))
    ]
    console.result(document, (f"Membership, {result.members} who took part against {result.others} others", rows))


@click.command()
@config_options(AUDIT, out=OUT_FOLDER)
@output_options
def audit(console: Console, config: Config) -> None:
    """Bound epsilon from below by one simulated training of the model in ARTIFACTS (Steinke et al. 2023).

    Canaries are users with a message of random words that they repeat; a coin says who of them may take part. Those
    whose message the last model makes much likelier than the first one are guessed to have, the least likely not to. So
    many right guesses refute every smaller epsilon, with the confidence. The numbers of guesses are fixed before; the
    best of several seeds or settings is no bound.
    """
    record, document = _attack(console, config, simulate_audit, config.take(AuditSettings))
    rows = {
        "canaries": record.canaries,
        "took part": record.took_part,
        "guesses": record.guesses,
        "right": record.right,
        "delta": f"{record.delta:g}",
        "confidence": record.confidence,
        "epsilon, at least": record.epsilon_at_least,
        "epsilon, accounted": "none: no noise" if record.epsilon is None else record.epsilon,
        "neighbours": record.neighbours,
    }
    console.result(document, (f"Audit of {record.rounds} rounds", figures(rows)))


def _attack(
    console: Console, config: Config, simulated: Callable[..., Found], settings: Settings
) -> tuple[Found, dict[str, Any]]:
    """Simulate and attack; what was found, and the command's result. No user is kept for evaluation."""
    study, rounds = config.take(Study), config.get("rounds.count")
    simulation = simulation_from(console, config, study, test_users=0, evaluate_every=rounds)
    texts = (study.artifacts, study.users, config.take(Output).out)
    with console.progress("simulating", "phones") as show, stop_signals() as stop:
        record = simulated(
            *texts,
            simulation,
            settings,
            rehearsal=study.rehearsal,
            workers=study.workers,
            progress=show,
            stop=stop,
        )
    return record, {**document_of(record), "config": config.document()}
