"""`phonograd privacy canaries` and `membership`: what someone who reads the models learns about users."""

from collections.abc import Callable
from typing import Any

import click

from phonograd.commands.codec_options import codec_option
from phonograd.commands.given import refuse
from phonograd.commands.native import build_on_first_use
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.serve_options import strategy_from, strategy_options
from phonograd.commands.settings_options import Decorator, settings_options, taken, usage_errors
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, output_options
from phonograd.help_groups import Grouped
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.attacks.records import AttackRecord
from phonograd.simulation.attacks.run import AttackSettings
from phonograd.simulation.settings import SimulationSettings

# Those of phonograd simulate, but for how the model is evaluated and how phones fail.
SETTINGS = {
    "rounds": "Rounds before the attack.",
    "clients_per_round": "Phones that take part in a round.",
    "user_share": "λ, the user's share of the tokens, with --rehearsal.",
    "text_bytes": "Bytes of a user's text per round.",
    "epochs": "Passes over the text.",
    "learning_rate": "Learning rate.  [default: the artifacts']",
    "output_sample": "As in phonograd train.",
    "precision": "As in phonograd train.",
    "seed": "Of all that is drawn at random.",
}
SECRETS = {
    "each": "Secrets for each number of insertions, each of another user.",
    "words": "Words that secrets are made of, drawn from the vocabulary.",
    "form": "What the message of a secret begins with.",
}


def simulation_options(command: Callable[..., None]) -> Callable[..., None]:
    """What both attacks need to simulate rounds."""
    decorators: list[Decorator] = [
        click.argument("artifacts", type=INPUT),
        click.option("--users", type=INPUT, required=True, help="As in phonograd simulate."),
        click.option(
            "--out",
            type=OUT_FOLDER,
            required=True,
            help="The simulation's folder; the same command resumes from it.",
        ),
        click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from."),
        lambda decorated: settings_options(SimulationSettings, SETTINGS, decorated),
        codec_option,
        strategy_options,
        click.option("--workers", type=click.IntRange(1), help="Processes that train.  [default: one a core]"),
        output_options,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def secret_options(command: Callable[..., None]) -> Callable[..., None]:
    """Those of CanarySettings."""
    command = settings_options(CanarySettings, SECRETS, command)
    shown = ",".join(map(str, CanarySettings.insertions))
    return click.option(
        "--insertions",
        default=shown,
        show_default=True,
        callback=lambda _context, _option, text: _numbers(text),
        help="How often a secret is in its user's text; more than one kind, with commas between them.",
    )(command)


@click.command(cls=Grouped)
@simulation_options
@secret_options
def canaries(console: Console, **options: Any) -> None:
    """Plant secrets in users' texts, simulate rounds, and measure what the model knows of them.

    A secret is a message, such as "my secret is A B C". Its exposure is log2 of the number of such secrets, minus log2
    of its rank among them by likelihood (Carlini et al. 2019): on average 1.4 bits if the model knows nothing of it.
    """
    with usage_errors(SETTINGS, SECRETS, {"insertions": ""}):
        settings = AttackSettings(taken(CanarySettings, {**SECRETS, "insertions": ""}, options), membership_users=0)
    record, document = _attacked(console, settings, options)
    assert record.canaries is not None
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
    ]
    console.result(document, (f"Exposure among {record.canaries.space:,} secrets", rows))


@click.command(cls=Grouped)
@simulation_options
@click.option(
    "--test-members",
    type=click.IntRange(1),
    default=AttackSettings.membership_users,
    show_default=True,
    help="The most users to test on each side.",
)
def membership(console: Console, test_members: int, **options: Any) -> None:
    """Simulate rounds, and tell from the model who took part.

    A user's score is how much likelier the last model makes its text than the first model. AUC is the chance that it is
    higher for one who took part than for one who did not; 0.5 is guessing. Intervals are 95 %, by bootstrap over users.
    """
    record, document = _attacked(console, AttackSettings(None, test_members), options)
    found = record.membership
    assert found is not None
    rows = [
        {"figure": name, "value": one.value, "low": one.low, "high": one.high}
        for name, one in (("AUC", found.auc), ("true positives at 1 % false", found.tpr))
    ]
    console.result(document, (f"Membership, {found.members} who took part against {found.others} others", rows))


def _attacked(console: Console, settings: AttackSettings, options: dict[str, Any]) -> tuple[AttackRecord, Any]:
    from phonograd.api.privacy import simulate_attacks
    from phonograd.device_runtime.base.documents import written

    if options["rehearsal"] is None:
        refuse("expected with --rehearsal, the general text to mix in", "user_share")
    with usage_errors(SETTINGS):
        chosen = {name: options[name] for name in SETTINGS}
        simulation = SimulationSettings(
            codec=options["codec"],
            strategy=strategy_from(options),
            test_users=0,
            evaluate_every=options["rounds"],
            **chosen,
        )
    build_on_first_use(console)
    with console.progress("rounds") as show, stop_signals() as stop:
        record = simulate_attacks(
            options["artifacts"],
            options["users"],
            options["out"],
            simulation,
            settings,
            rehearsal=options["rehearsal"],
            workers=options["workers"],
            progress=show,
            stop=stop,
        )
    return record, written(record)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"whole numbers with commas between them expected, found {text!r}") from error
