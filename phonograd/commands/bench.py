"""`phonograd bench`: what training and aggregation cost on this machine."""

import dataclasses
import tempfile
from pathlib import Path

import click

from bench.epoch import EpochBenchConfig
from device_runtime.backends import BACKENDS, DEFAULT_BACKEND
from device_runtime.codecs import CODECS
from phonograd.console import Console, output_options

PATH = click.Path(path_type=Path)
DEFAULTS = EpochBenchConfig()
PRESET = "popov-2x650"


@click.group()
def bench() -> None:
    """What training and aggregation cost on this machine: ratios last, absolute times do not."""


@bench.command()
@click.option("--artifacts", type=PATH, help="The folder to measure.  [default: popov-2x650 with random weights]")
@click.option("--backend", type=click.Choice(BACKENDS), default=DEFAULT_BACKEND, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=DEFAULTS.steps, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=DEFAULTS.threads, show_default=True)
@output_options
def epoch(console: Console, artifacts: Path | None, backend: str, steps: int, threads: int) -> None:
    """Training steps at full size, beside the machine's sgemm rate."""
    from bench.epoch import bench_epoch

    config = dataclasses.replace(DEFAULTS, steps=steps, threads=threads)
    with tempfile.TemporaryDirectory() as place:
        result = dataclasses.asdict(bench_epoch(artifacts or _random_artifacts(console, Path(place)), backend, config))
    result["fraction_of_sgemm"] = result["step_gflops"] / result["sgemm_gflops"]
    rows = [{"figure": key, "value": value} for key, value in result.items() if key != "step_seconds"]
    console.result(result, ("Epoch", rows))


def _random_artifacts(console: Console, folder: Path) -> Path:
    from bench.measuring import in_fresh_process

    console.say(f"exporting {PRESET} with random weights")
    in_fresh_process(_export, folder)
    return folder / "artifacts"


def _export(folder: Path) -> None:
    from device_runtime.manifest import TrainingConfig
    from device_runtime.vocabulary import EOS_WORD, UNK_WORD, Vocabulary
    from export.artifacts import export_artifacts
    from export.presets import preset_named
    from export.torch_layout import seeded_weights

    model = preset_named(PRESET).model
    words = Vocabulary((UNK_WORD, EOS_WORD, *(b"w%d" % number for number in range(model.vocabulary - 2))))
    export_artifacts(folder / "artifacts", model, TrainingConfig(), seeded_weights(model, 0), words)


@bench.command()
@click.option("--preset", default=PRESET, show_default=True, help="The model's shape.")
@click.option("--updates", type=click.IntRange(1), multiple=True, default=(2, 40), show_default=True)
@output_options
def aggregate(console: Console, preset: str, updates: tuple[int, ...]) -> None:
    """The fold: seconds per update, and memory for few and many phones."""
    from bench.aggregate import bench_aggregate

    rows = [dataclasses.asdict(result) for result in bench_aggregate(preset, updates, tuple(CODECS))]
    console.result(rows, ("Aggregation", rows))
