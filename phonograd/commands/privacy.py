"""`phonograd privacy`: epsilon without a server, and empirical privacy."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from phonograd.commands.given import refuse
from phonograd.commands.native import build_on_first_use
from phonograd.commands.numbers import FiniteRange
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.commands.privacy_attacks import canaries, membership
from phonograd.commands.settings_options import settings_options, taken, usage_errors
from phonograd.console import Console, output_options
from phonograd.simulation.empirical.pairs import PrivacySettings
from phonograd.simulation.empirical.tail import DELTAS, epsilon_of, paper_table_8, worst_epsilons
from phonograd.simulation.settings import SimulationSettings

DEFAULTS = PrivacySettings()
SETTINGS = {
    "clients_per_round": "Users of a set.",
    "text_bytes": "Bytes of a user's text.",
    "user_share": "λ, with --rehearsal.",
    "output_sample": "As in phonograd train.",
    "precision": "As in phonograd train.",
    "seed": "Of all that is drawn at random.",
}


def simulation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Those of SimulationSettings that a pair of rounds has."""
    return settings_options(SimulationSettings, SETTINGS, command)


@click.group(invoke_without_command=True)
@click.option("--reproduce-table", type=click.Choice(["8"]), help="Compute paper P's Table 8 from its Table 7.")
@output_options
@click.pass_context
def privacy(context: click.Context, console: Console, reproduce_table: str | None) -> None:
    """Compute epsilon without a server, and measure what a model gives away."""
    if context.invoked_subcommand is not None:
        if reproduce_table is not None:
            raise click.UsageError("--reproduce-table takes no subcommand")
        return
    if reproduce_table is None:
        click.echo(context.get_help())
        return
    epsilons = paper_table_8()
    rows = [{"delta": f"{delta:g}", "epsilon": epsilon} for delta, epsilon in zip(DELTAS, epsilons, strict=True)]
    console.result({"epsilon": epsilons}, ("Paper P, Table 8", rows))


privacy.add_command(canaries)
privacy.add_command(membership)


@privacy.command()
@click.option("--population", type=click.IntRange(1), required=True, help="Enrolled phones, N.")
@click.option("--per-round", type=click.IntRange(1), required=True, help="Phones expected in a round, K: q = K / N.")
@click.option("--noise", type=FiniteRange(0), required=True, help="Noise multiplier, z.")
@click.option("--rounds", type=click.IntRange(1), required=True)
@click.option("--delta", type=FiniteRange(0, 1, min_open=True, max_open=True), required=True)
@output_options
def epsilon(console: Console, population: int, per_round: int, noise: float, rounds: int, delta: float) -> None:
    """The epsilon that rounds of dp-fedavg or dp-fedsgd spend (paper M), by privacy loss distributions and by RDP."""
    from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent

    if per_round > population:
        raise click.UsageError(f"--per-round: at most --population ({population}) expected, found {per_round}")
    sampling = per_round / population
    spent = dataclasses.asdict(privacy_spent([PrivateRounds(sampling, noise, rounds)], delta))
    document = {"sampling": sampling, "noise_multiplier": noise, **spent}
    # JSON has no infinity: without noise there is no epsilon.
    document = {name: None if value == float("inf") else value for name, value in document.items()}
    rows = [{"figure": name, "value": "infinite" if value is None else value} for name, value in document.items()]
    console.result(document, ("Privacy spent", rows))


@privacy.command()
@click.argument("artifacts", type=INPUT)
@click.option("--users", type=INPUT, required=True, help="As in phonograd simulate.")
@click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
@click.option("--pairs", type=click.IntRange(1), default=DEFAULTS.pairs, show_default=True, help="Adjacent sets.")
@click.option("--texts", type=click.IntRange(1), default=DEFAULTS.texts, show_default=True, help="Drawn for each pair.")
@click.option("--words", type=click.IntRange(1), default=DEFAULTS.words, show_default=True, help="Of a text.")
@simulation_options
@click.option("--workers", type=click.IntRange(1), help="Processes that train.  [default: one a core]")
@click.option("--page", type=OUTPUT, help="Write an HTML page with plots here.")
@output_options
def empirical(
    console: Console,
    artifacts: Path,
    users: Path,
    rehearsal: Path | None,
    pairs: int,
    texts: int,
    words: int,
    workers: int | None,
    page: Path | None,
    **options: Any,
) -> None:
    """Measure empirical privacy (paper P): how the likelihood of a model's own texts changes if one user is another.

    For each pair of adjacent user sets one round is simulated with each, texts are drawn from the first model, and the
    tail of their likelihood ratio is fitted. Lilliefors' test says whether the fit holds.
    """
    from phonograd.api.privacy import empirical_privacy

    if rehearsal is None:
        refuse("expected with --rehearsal, the general text to mix in", "user_share")
    with usage_errors(SETTINGS):
        simulation = taken(SimulationSettings, SETTINGS, options)
    settings = PrivacySettings(pairs, texts, words, simulation)
    build_on_first_use(console)
    with console.progress("pairs") as show:
        found = empirical_privacy(
            artifacts,
            users,
            settings,
            rehearsal=rehearsal,
            workers=workers,
            progress=lambda done, total: show(done, total, ""),
        )
    rows = [
        {
            "user": pair.user,
            "other": pair.other,
            "alpha": pair.tail.alpha,
            "C": pair.tail.C,
            "Lilliefors": pair.tail.statistic,
            "passes": pair.tail.passes,
            **{f"epsilon, delta {delta:g}": epsilon_of(pair.tail.alpha, pair.tail.C, delta) for delta in DELTAS},
        }
        for pair in found
    ]
    if page is not None:
        from phonograd.simulation.empirical.page import write_page

        write_page(page, found, rows)
        console.say(f"wrote {page}")
    fitted = [(pair.tail.alpha, pair.tail.C) for pair in found if pair.tail.passes]
    worst = worst_epsilons(fitted) if fitted else [None] * len(DELTAS)  # no tail, no epsilon
    passing = f"{len(fitted)} of {len(found)}"
    summary = [
        {"delta": f"{delta:g}", "epsilon": "withheld: no tail fits" if value is None else value, "pairs": passing}
        for delta, value in zip(DELTAS, worst, strict=True)
    ]
    document = {"pairs": rows, "deltas": DELTAS, "epsilon": worst, "passing": len(fitted) / len(found)}
    console.result(document, ("Pairs of adjacent user sets", rows), ("Largest epsilon, of pairs that pass", summary))
