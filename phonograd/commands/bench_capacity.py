"""`phonograd bench capacity`: what a service for many phones needs."""

from pathlib import Path

import click

from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.commands.bench_options import finish, save_option
from phonograd.commands.configured import config_options
from phonograd.config.bench_capacity import CAPACITY
from phonograd.config.values import Config
from phonograd.console import Console, output_options


@click.command()
@config_options(CAPACITY)
@save_option
@output_options
def capacity(console: Console, config: Config, save: Path | None) -> None:
    """Measure what a server does with many phones, and plan a service for 10 thousand to 100 million a day.

    Thousands of phones send updates to a real server on this machine: seconds and CPU time of their requests, the
    slowest one, and memory after each round. Some minutes, and a few GB of disk until it ends.
    """
    from phonograd.bench.capacity.bench import bench_capacity

    demand = config.take(Demand, prices=config.take(Prices))
    result = bench_capacity(config.take(CapacityConfig, demand=demand), console.say)
    finish(console, result | {"config": config.document()}, save)
