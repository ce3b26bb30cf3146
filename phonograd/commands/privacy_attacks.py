"""`phonograd privacy canaries`, `membership` and `audit`: what someone who reads the models learns about users."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from phonograd.api.simulating import simulate_attacks, simulate_audit
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, Command, Options, decorated, opt
from phonograd.commands.own_classes import TakesOwn
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.serve_options import strategy_from, strategy_options, warn_of_norms
from phonograd.commands.shared_options import CODEC, REHEARSAL, USERS, WORKERS, refuse_share_alone
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.base.documents import Record, written
from phonograd.simulation.attacks.audit import AuditSettings
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.attacks.run import AttackSettings
from phonograd.simulation.records import ExposureChange
from phonograd.simulation.settings import SimulationSettings

Found = TypeVar("Found", bound=Record)

# Those of phonograd simulate, but for how the model is evaluated and how phones fail.
SIMULATION = Options(
    SimulationSettings,
    rounds="Rounds before the attack.",
    clients_per_round="Phones that take part in a round.",
    user_share="λ, the user's share of the tokens, with --rehearsal.",
    text_bytes="Bytes of a user's text per round.",
    epochs="Passes over the text.",
    learning_rate=opt("Learning rate.  [default: the artifacts']", name="--lr"),
    output_sample="As in phonograd train.",
    precision="As in phonograd train.",
    seed="Of all that is drawn at random.",
    codec=CODEC,
)


def _numbers(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"whole numbers with commas between them expected, found {text!r}") from error


SECRETS = Options(
    CanarySettings,
    insertions=opt(
        "How often a secret is in its user's text; more than one kind, with commas between them; 0: controls.",
        str,
        default=",".join(map(str, CanarySettings.insertions)),
        multiple=False,
        callback=_numbers,
    ),
    each="Secrets for each number of insertions, each of another user.",
    controls="Secrets that nobody wrote, if 0 is among the insertions.",
    words="Words that secrets are made of, drawn from the vocabulary.",
    form="What the message of a secret begins with.",
)


MEMBERS = Options(
    AttackSettings, membership_users=opt("The most users to test on each side.", COUNT, name="--test-members")
)
COINS = Options(
    AuditSettings,
    canaries="Users to enrol, each of whom may take part with chance 1/2.",
    guess_in="Canaries with the highest scores, guessed to have taken part.",
    guess_out="Canaries with the lowest scores, guessed not to have taken part.",
    words="Words of a canary's message, drawn from the vocabulary.",
    at_delta="Delta of the bound.  [default: --dp-delta]",
    confidence="Of the bound.",
)
TEXTS = Options(
    simulate_attacks,
    users=USERS,
    out=opt("The simulation's folder; the same command resumes from it.", OUT_FOLDER),
    rehearsal=REHEARSAL,
    workers=WORKERS,
)


def simulation_options(command: Command) -> Command:
    """What all attacks need to simulate rounds."""
    return decorated(
        command, click.argument("artifacts", type=INPUT), TEXTS, SIMULATION, strategy_options, output_options
    )


@click.command(cls=TakesOwn)
@simulation_options
@SECRETS
def canaries(console: Console, **options: Any) -> None:
    """Plant secrets in users' texts, simulate rounds, and measure what the model knows of them.

    A secret is a message, such as "my secret is A B C". Its exposure is log2 of the number of such secrets, minus log2
    of its rank among them by likelihood (Carlini et al. 2019): on average 1.4 bits if the model knows nothing of it.
    Training changes the exposure of what nobody wrote too, so compare with the controls. Intervals are 95 %, by
    bootstrap over secrets.
    """
    settings = AttackSettings(SECRETS.take(options), membership_users=0)
    record, document = _attacked(console, simulate_attacks, settings, options)
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


@click.command(cls=TakesOwn)
@simulation_options
@MEMBERS
def membership(console: Console, **options: Any) -> None:
    """Simulate rounds, and tell from the model who took part.

    A user's score is how much likelier the last model makes its text than the first model. AUC is the chance that it is
    higher for one who took part than for one who did not; 0.5 is guessing. Intervals are 95 %, by bootstrap over users.
    """
    record, document = _attacked(console, simulate_attacks, MEMBERS.take(options, canaries=None), options)
    result = record.membership
    assert result is not None
    rows = [
        {"figure": name, "value": one.value, "low": one.low, "high": one.high}
        for name, one in (("AUC", result.auc), ("true positives at 1 % false", result.tpr))
    ]
    console.result(document, (f"Membership, {result.members} who took part against {result.others} others", rows))


@click.command(cls=TakesOwn)
@simulation_options
@COINS
def audit(console: Console, **options: Any) -> None:
    """Bound epsilon from below by one simulated training (Steinke et al. 2023).

    Canaries are users with a message of random words that they repeat; a coin says who of them may take part. Those
    whose message the last model makes much likelier than the first one are guessed to have, the least likely not to. So
    many right guesses refute every smaller epsilon, with the confidence. The numbers of guesses are fixed before; the
    best of several seeds or settings is no bound.
    """
    record, document = _attacked(console, simulate_audit, COINS.take(options), options)
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


def _attacked(
    console: Console, simulated: Callable[..., Found], settings: object, options: dict[str, Any]
) -> tuple[Found, Any]:
    refuse_share_alone(options)
    strategy, rounds = strategy_from(options), options["rounds"]
    simulation = SIMULATION.take(options, strategy=strategy, test_users=0, evaluate_every=rounds)
    warn_of_norms(console, strategy, [simulation.codec])
    build_on_first_use(console)
    with console.progress("rounds") as show, stop_signals() as stop:
        record = simulated(simulation=simulation, settings=settings, progress=show, stop=stop, **options)
    return record, written(record)
