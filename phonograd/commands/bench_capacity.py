"""`phonograd bench capacity`: what a service for many phones needs."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import click
import msgspec

from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.commands.bench_options import repeated, save_option
from phonograd.commands.options import COUNT, SHARE, FiniteRange
from phonograd.console import Console, output_options

NUMBER = COUNT
PRICES = {field.name: field.default for field in dataclasses.fields(Prices)}
DEMAND = Demand()


def _prices(given: tuple[str, ...]) -> Prices:
    """Raises ValueError with what is wrong."""
    found: dict[str, float] = {}
    for text in given:
        name, _, dollars = text.partition("=")
        if name not in PRICES or name in found or not 0 <= _number(dollars) < math.inf:
            raise ValueError(f"{text!r}: expected NAME=DOLLARS, each of {', '.join(PRICES)} at most once")
        found[name] = _number(dollars)
    return Prices(**found)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _checked(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    try:
        _prices(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return given


@click.command()
@click.option("--preset", default=CapacityConfig.preset, help="The service's model.")
@click.option("--phones", type=NUMBER, default=CapacityConfig.phones, help="Phones with it.")
@click.option(
    "--small-phones", type=NUMBER, default=CapacityConfig.small_phones, help="Phones with a tiny model, before them."
)
@click.option("--rounds", type=NUMBER, default=CapacityConfig.rounds, help="Rounds of each.")
@click.option("--at-once", type=NUMBER, default=CapacityConfig.at_once, help="Phones at a time.")
@click.option(
    "--phones-a-day", type=NUMBER, multiple=True, default=CapacityConfig.phones_a_day, help="Phones to plan for."
)
@click.option("--rounds-a-day", type=NUMBER, default=DEMAND.rounds_a_day)
@click.option("--peak", type=FiniteRange(1), default=DEMAND.peak, help="The busiest hour's rate, divided by the mean.")
@click.option("--load", type=SHARE, default=DEMAND.load, help="The share of a server's measured rate to plan with.")
@click.option(
    "--price",
    "given",
    metavar="NAME=DOLLARS",
    multiple=True,
    callback=_checked,
    help="core, memory (a GB): an hour's; disk, store (a GB): a month's; sent: a GB's; puts: a million's. "
    f"[default: {' '.join(f'{name}={value:g}' for name, value in PRICES.items())}]",
)
@click.option("--ledger", metavar="URL", help="An empty database in PostgreSQL, to measure its commits too.")
@save_option
@output_options
def capacity(
    console: Console,
    given: tuple[str, ...],
    rounds_a_day: int,
    peak: float,
    load: float,
    save: Path | None,
    **options: Any,
) -> None:
    """Measure what a server does with many phones, and plan a service for 10 thousand to 100 million a day.

    Thousands of phones send updates to a real server on this machine: seconds and CPU time of their requests, the
    slowest one, and memory after each round. Some minutes, and a few GB of disk until it ends.
    """
    from phonograd.bench.capacity.bench import bench_capacity
    from phonograd.bench.capacity.tables import capacity_tables
    from phonograd.bench.results import save_result

    demand = dataclasses.replace(DEMAND, rounds_a_day=rounds_a_day, peak=peak, load=load, prices=_prices(given))
    result = bench_capacity(CapacityConfig(demand=demand, **options), console.say)
    document = msgspec.to_builtins(result)
    if save is not None:
        save_result(save, document, repeated())
    console.result(document, *capacity_tables(result))
