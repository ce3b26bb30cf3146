"""`phonograd privacy`: epsilon without a server, and empirical privacy."""

import dataclasses
from typing import Annotated, Any, Literal

import click

from phonograd.api.simulating import empirical_privacy
from phonograd.commands.configured import config_options
from phonograd.commands.options import COUNT, FiniteRange, Options, opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.commands.privacy_attacks import audit, canaries, membership
from phonograd.commands.study import simulation_from
from phonograd.config.serve import MASKED
from phonograd.config.simulate import EMPIRICAL, Study
from phonograd.config.strategies import STRATEGY
from phonograd.config.values import Config, use_toml_words
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS, NEIGHBOURS_OF_PAIRS
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.simulation.empirical.pairs import PrivacySettings
from phonograd.simulation.empirical.tail import DELTAS, PAPER_TABLE_7, epsilon_of, worst_epsilons

RUN = Options(
    StrategySettings,
    planned_rounds="n, rounds of the whole run.",
    min_separation="b, rounds from one participation of a phone to its next, at least.",
    max_participations="k, of a phone in the whole run, at most.",
    noise_buffers="Buffers of the model's size that the noise keeps.",
    noise_multiplier="z, of the whole run.",
    delta=opt("Delta of the guarantee.", name="--dp-delta"),
)


@click.group(invoke_without_command=True)
@own_options
@output_options
@click.pass_context
def privacy(
    context: click.Context,
    console: Console,
    reproduce_table: Annotated[Literal["8"] | None, "Compute paper P's Table 8 from its Table 7."] = None,
) -> None:
    """Compute epsilon without a server, and measure what a model gives away."""
    if context.invoked_subcommand is not None:
        if reproduce_table is not None:
            raise click.UsageError("--reproduce-table takes no subcommand")
        return
    if reproduce_table is None:
        click.echo(context.get_help())
        return
    epsilons = [round(epsilon, 2) for epsilon in worst_epsilons(PAPER_TABLE_7)]
    rows = [{"delta": f"{delta:g}", "epsilon": epsilon} for delta, epsilon in zip(DELTAS, epsilons, strict=True)]
    document = {"epsilon": epsilons, "neighbours": NEIGHBOURS_OF_PAIRS}
    console.result(document, (f"Paper P, Table 8: {NEIGHBOURS_OF_PAIRS}", rows))


privacy.add_command(audit)
privacy.add_command(canaries)
privacy.add_command(membership)


@privacy.command()
@own_options
@output_options
def epsilon(
    console: Console,
    population: Annotated[int, opt("Enrolled phones, N.", COUNT)],
    per_round: Annotated[int, opt("Phones expected in a round, K: q = K / N.", COUNT)],
    noise: Annotated[float, opt("Noise multiplier, z.", FiniteRange(0))],
    rounds: Annotated[int, opt(kind=COUNT)],
    delta: Annotated[float, opt(kind=FiniteRange(0, 1, min_open=True, max_open=True))],
) -> None:
    """The epsilon that rounds of dp-fedavg or dp-fedsgd spend (paper M), by privacy loss distributions and by RDP."""
    from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent

    if per_round > population:
        raise click.UsageError(f"--per-round: at most --population ({population}) expected, found {per_round}")
    sampling = per_round / population
    spent = dataclasses.asdict(privacy_spent([PrivateRounds(sampling, noise, rounds)], delta))
    document = {"sampling": sampling, "noise_multiplier": noise, **spent}
    # JSON has no infinity: without noise there is no epsilon.
    document = {name: None if value == float("inf") else value for name, value in document.items()}
    rows = figures({name: "infinite" if value is None else value for name, value in document.items()})
    console.result(document, ("Privacy spent", rows))


@privacy.command()
@own_options
@RUN
@output_options
def ftrl(
    console: Console,
    parameters: Annotated[int, opt("Numbers that phones send, which the noise is added to.", COUNT)] = 45_800_000,
    **options: Any,
) -> None:
    """What a run of dp-ftrl costs, and the noise in the sum of its rounds beside other mechanisms of the same epsilon.

    The noise is the root mean square over the rounds, in units of the clip norm. noise_end_delta is what it adds to
    delta that the noise, as it is computed, has an end.
    """
    from phonograd.server_agg.aggregation.correlation.errors import running_sum_errors
    from phonograd.server_agg.aggregation.correlation.run import begin_run
    from phonograd.server_agg.aggregation.privacy.accountant import zcdp_of
    from phonograd.server_agg.aggregation.privacy.budget import privacy_spent_including
    from phonograd.server_agg.aggregation.privacy.noise import delta_of_end

    settings = RUN.take(options, strategy=FTRL)
    z, run = settings.noise_multiplier, begin_run(settings)
    errors = running_sum_errors(run.blt, run.planned_rounds, run.min_separation, run.max_participations)
    noise = {name: z * error for name, error in dataclasses.asdict(errors).items()}
    epsilon = privacy_spent_including([], settings).epsilon
    end = delta_of_end(parameters, run.planned_rounds, epsilon)
    cost: dict[str, object] = {"epsilon": epsilon, "zcdp": zcdp_of(z), "delta": settings.delta, "noise_end_delta": end}
    known = {name: None if value == float("inf") else value for name, value in cost.items()}
    known["neighbours"] = NEIGHBOURS
    document = {**known, "sensitivity": run.sensitivity, "noise_of_running_sum": noise}
    rows = [{"mechanism": name.replace("_", " "), "noise": error} for name, error in noise.items()]
    shown = {name: "infinite" if value is None else value for name, value in known.items()}
    console.result(document, ("Privacy spent", figures(shown)), ("Noise of the running sum", rows))


@privacy.command()
@config_options(EMPIRICAL, page=OUTPUT)
@output_options
def empirical(console: Console, config: Config) -> None:
    """Measure empirical privacy (paper P): how the likelihood of a model's own texts changes if one user is another.

    For each pair of adjacent user sets one round of the model in ARTIFACTS is simulated with each, texts are drawn from
    either model, and the tails of their likelihood ratios are fitted, one for each direction. Lilliefors' test says
    whether a fit holds.
    """
    study = config.take(Study)
    simulation = simulation_from(console, config, study)
    for key, good in ((MASKED, simulation.masked is None), (STRATEGY, not simulation.strategy.slow)):
        if not good:
            found = f"{config.name_of(key)} is {config.get(key)}, expected rounds that average what phones send"
            raise UsageError(use_toml_words(found))
    settings = config.take(PrivacySettings, simulation=simulation)
    with console.progress("simulating", "pairs") as show:
        measured = empirical_privacy(
            study.artifacts,
            study.users,
            settings,
            rehearsal=study.rehearsal,
            workers=study.workers,
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
        for pair in measured
    ]
    if study.page is not None:
        from phonograd.simulation.empirical.page import write_page

        write_page(study.page, measured, rows)
        console.say(f"wrote {study.page}")
    fitted = [(pair.tail.alpha, pair.tail.C) for pair in measured if pair.tail.passes]
    worst = worst_epsilons(fitted) if fitted else [None] * len(DELTAS)  # no tail, no epsilon
    passing = f"{len(fitted)} of {len(measured)}"
    summary = [
        {"delta": f"{delta:g}", "epsilon": "withheld: no tail fits" if value is None else value, "tails": passing}
        for delta, value in zip(DELTAS, worst, strict=True)
    ]
    title = f"Largest epsilon, of tails that pass: {NEIGHBOURS_OF_PAIRS}"
    document = {
        "pairs": rows,
        "deltas": DELTAS,
        "epsilon": worst,
        "neighbours": NEIGHBOURS_OF_PAIRS,
        "passing": len(fitted) / len(measured),
        "config": config.document(),
    }
    console.result(document, ("Pairs of adjacent user sets", rows), (title, summary))
