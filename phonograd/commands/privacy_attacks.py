"""`phonograd privacy canaries` and `membership`: what someone who reads the models learns about users."""

from typing import Any

import click

from phonograd.api.simulating import simulate_attacks
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, Command, Grouped, Options, decorated, opt
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.serve_options import strategy_from, strategy_options, warn_of_norms
from phonograd.commands.shared_options import CODEC, REHEARSAL, USERS, WORKERS, refuse_share_alone
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import written
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.attacks.run import AttackSettings
from phonograd.simulation.records import AttackRecord, ExposureChange
from phonograd.simulation.settings import SimulationSettings

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
TEXTS = Options(
    simulate_attacks,
    users=USERS,
    out=opt("The simulation's folder; the same command resumes from it.", OUT_FOLDER),
    rehearsal=REHEARSAL,
    workers=WORKERS,
)


def simulation_options(command: Command) -> Command:
    """What both attacks need to simulate rounds."""
    return decorated(
        command, click.argument("artifacts", type=INPUT), TEXTS, SIMULATION, strategy_options, output_options
    )


@click.command(cls=Grouped)
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
    record, document = _attacked(console, settings, options)
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


@click.command(cls=Grouped)
@simulation_options
@MEMBERS
def membership(console: Console, **options: Any) -> None:
    """Simulate rounds, and tell from the model who took part.

    A user's score is how much likelier the last model makes its text than the first model. AUC is the chance that it is
    higher for one who took part than for one who did not; 0.5 is guessing. Intervals are 95 %, by bootstrap over users.
    """
    record, document = _attacked(console, MEMBERS.take(options, canaries=None), options)
    result = record.membership
    assert result is not None
    rows = [
        {"figure": name, "value": one.value, "low": one.low, "high": one.high}
        for name, one in (("AUC", result.auc), ("true positives at 1 % false", result.tpr))
    ]
    console.result(document, (f"Membership, {result.members} who took part against {result.others} others", rows))


def _attacked(console: Console, settings: AttackSettings, options: dict[str, Any]) -> tuple[AttackRecord, Any]:
    refuse_share_alone(options)
    strategy, rounds = strategy_from(options), options["rounds"]
    simulation = SIMULATION.take(options, strategy=strategy, test_users=0, evaluate_every=rounds)
    warn_of_norms(console, strategy, [simulation.codec])
    build_on_first_use(console)
    with console.progress("rounds") as show, stop_signals() as stop:
        record = simulate_attacks(simulation=simulation, settings=settings, progress=show, stop=stop, **options)
    return record, written(record)
