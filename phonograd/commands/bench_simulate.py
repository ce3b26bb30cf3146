"""`phonograd bench simulate`: a simulated round by phonograd and by Flower."""

from pathlib import Path
from typing import Any

import click

from phonograd.bench.contestants import BenchError
from phonograd.bench.simulate import SimulateBenchConfig, bench_simulate
from phonograd.commands.bench_options import artifacts_option, artifacts_or_random, finish, save_option
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, Options, opt
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.system import usable_cores

CONFIG = Options(
    SimulateBenchConfig,
    phones=opt("Phones of a round.", COUNT),
    text_bytes=opt("Text of each; as much general text is added.", COUNT),
    workers=opt("Phones that train at a time, one thread each.  [default: one a core]", COUNT, default=None),
    flower_python=opt("A Python interpreter with flwr[simulation].  [default: this one]", metavar="PYTHON"),
    rounds=opt("Runs of each, in turn.", COUNT),
)


@click.command()
@artifacts_option
@CONFIG
@save_option
@output_options
def simulate(console: Console, artifacts: Path | None, save: Path | None, **options: Any) -> None:
    """Compare a simulated round with Flower's simulation: seconds, CPU time and memory of all processes.

    The same model, phones and texts for all: random words by Zipf's law. The runs take turns, each in processes of its
    own. The exit code is 16 if the losses of the first round differ.
    """
    options["workers"] = options["workers"] or usable_cores()
    config = CONFIG.take(options)
    build_on_first_use(console)
    with artifacts_or_random(console, artifacts) as folder:
        result = bench_simulate(folder, config, console.say)
    finish(console, result, save)
    if result["disagreements"]:
        raise BenchError(f"bench: the contestants do not train the same: {'; '.join(result['disagreements'])}")
