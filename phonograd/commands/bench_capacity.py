"""`phonograd bench capacity`: what a service for many phones needs."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import click

from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.commands.bench_options import finish, save_option
from phonograd.commands.options import COUNT, SHARE, FiniteRange, Options, opt
from phonograd.console import Console, output_options

PRICES = {field.name: field.default for field in dataclasses.fields(Prices)}
CAPACITY = Options(
    CapacityConfig,
    preset="The service's model.",
    phones=opt("Phones with it.", COUNT),
    small_phones=opt("Phones with a tiny model, before them.", COUNT),
    rounds=opt("Rounds of each.", COUNT),
    at_once=opt("Phones at a time.", COUNT),
    profiled=opt("Phones of each whose time at the server is told by parts.", COUNT),
    phones_a_day=opt("Phones to plan for.", COUNT),
    ledger=opt("An empty database in PostgreSQL, to measure its commits too.", metavar="URL"),
)
DEMAND = Options(
    Demand,
    rounds_a_day=opt(kind=COUNT),
    peak=opt("The busiest hour's rate, divided by the mean.", FiniteRange(1)),
    load=opt("The share of a server's lowest limit to plan with.", SHARE),
    gigabits=opt("A second, of a server's network.", FiniteRange(0, min_open=True)),
)


def _prices(given: tuple[str, ...]) -> Prices:
    """Raises ValueError with what is wrong."""
    prices: dict[str, float] = {}
    for text in given:
        name, _, dollars = text.partition("=")
        if name not in PRICES or name in prices or not 0 <= _number(dollars) < math.inf:
            raise ValueError(f"{text!r}: expected NAME=DOLLARS, each of {', '.join(PRICES)} at most once")
        prices[name] = _number(dollars)
    return Prices(**prices)


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
@CAPACITY
@DEMAND
@click.option(
    "--price",
    "given",
    metavar="NAME=DOLLARS",
    multiple=True,
    callback=_checked,
    help="core, memory (a GB): an hour's; disk, store (a GB): a month's; sent: a GB's; puts: a million's. "
    f"[default: {' '.join(f'{name}={value:g}' for name, value in PRICES.items())}]",
)
@save_option
@output_options
def capacity(console: Console, given: tuple[str, ...], save: Path | None, **options: Any) -> None:
    """Measure what a server does with many phones, and plan a service for 10 thousand to 100 million a day.

    Thousands of phones send updates to a real server on this machine: seconds and CPU time of their requests, the
    slowest one, and memory after each round. Some minutes, and a few GB of disk until it ends.
    """
    from phonograd.bench.capacity.bench import bench_capacity

    demand = DEMAND.take(options, prices=_prices(given))
    finish(console, bench_capacity(CAPACITY.take(options, demand=demand), console.say), save)
