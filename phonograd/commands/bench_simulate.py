"""`phonograd bench simulate`: a simulated round by phonograd and by Flower."""

import dataclasses
from pathlib import Path

import click
import msgspec

from phonograd.bench.contestants import BenchError
from phonograd.commands.bench_options import artifacts_or_random, repeated, save_option
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT
from phonograd.commands.paths import INPUT
from phonograd.console import Console, output_options

NUMBER = COUNT


@click.command()
@click.option("--artifacts", type=INPUT, help="Artifacts folder to use.  [default: popov-2x650 with random weights]")
@click.option("--phones", type=NUMBER, default=10, help="Phones of a round.")
@click.option("--text-bytes", type=NUMBER, default=10_000, help="Text of each; as much general text is added.")
@click.option("--batch", type=NUMBER, default=5, help="Phones that torch also trains at once.")
@click.option("--output-sample", type=NUMBER, metavar="N", default=2000)
@click.option("--workers", type=NUMBER, help="Phones that train at a time, one thread each.  [default: one a core]")
@click.option(
    "--flower-python", metavar="PYTHON", help="A Python interpreter with flwr[simulation].  [default: this one]"
)
@click.option("--rounds", type=NUMBER, default=3, help="Runs of each, in turn.")
@save_option
@output_options
def simulate(
    console: Console,
    artifacts: Path | None,
    phones: int,
    text_bytes: int,
    batch: int,
    output_sample: int,
    workers: int | None,
    flower_python: str | None,
    rounds: int,
    save: Path | None,
) -> None:
    """Compare a simulated round with Flower's simulation: seconds, CPU time and memory of all processes.

    The same model, phones and texts for all: random words by Zipf's law. The runs take turns, each in processes of its
    own. The exit code is 16 if the losses of the first round differ.
    """
    from phonograd.bench.results import save_result
    from phonograd.bench.simulate import SimulateBenchConfig, bench_simulate, simulate_rows

    config = SimulateBenchConfig(phones, text_bytes, batch, output_sample, flower_python=flower_python, rounds=rounds)
    if workers is not None:
        config = dataclasses.replace(config, workers=workers)
    build_on_first_use(console)
    with artifacts_or_random(console, artifacts) as folder:
        result = bench_simulate(folder, config, console.say)
    document = msgspec.to_builtins(result)
    if save is not None:
        save_result(save, document, repeated())
    console.result(document, (f"A simulated round of {phones} phones", [*simulate_rows(result)]))
    if result.disagreements:
        raise BenchError(f"bench: the contestants do not train the same: {'; '.join(result.disagreements)}")
