"""`phonograd bench`: what training and aggregation cost on this machine."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import click

from phonograd.bench.aggregate import AggregateBenchConfig, bench_aggregate
from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.bench.contestants import BenchError, selected_entries
from phonograd.bench.ingest import IngestBenchConfig, bench_ingest
from phonograd.bench.kernels import bench_kernels
from phonograd.bench.masked import MaskedBenchConfig, bench_masked
from phonograd.bench.parity import ParityConfig, bench_parity
from phonograd.bench.predict import PredictBenchConfig, bench_predict
from phonograd.bench.simulate import SimulateBenchConfig, bench_simulate
from phonograd.bench.synthetic import random_artifacts
from phonograd.bench.tokenize import TokenizeBenchConfig, bench_tokenize
from phonograd.bench.upload import UploadBenchConfig, bench_upload
from phonograd.commands.bench_epoch import epoch
from phonograd.commands.bench_options import (
    PRESET,
    Names,
    artifacts_option,
    artifacts_or_random,
    finish,
    names,
    names_option,
    save_option,
)
from phonograd.commands.configured import config_options
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, THREADS, Choice, Options, opt, refuse
from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.commands.shared_options import IN_GROUPS
from phonograd.config.bench_capacity import CAPACITY
from phonograd.config.values import Config
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.update.codecs import CODECS

PARITY = Options(ParityConfig, steps=opt(kind=COUNT), threads=opt(kind=THREADS))
AGGREGATE = Options(
    AggregateBenchConfig,
    preset="The model's shape.",
    counts=opt(kind=COUNT, name="--updates"),
    codecs=names(CODECS, "full-f32", f"Codecs to run the fold with; Flower takes whole weights. {IN_GROUPS}"),
    flower_python=opt("A Python interpreter with flwr.  [default: this one]", metavar="PYTHON"),
    rounds=opt("Runs of each, in turn.", COUNT),
)
MASKED = Options(
    MaskedBenchConfig,
    preset="The model's shape.",
    phones=opt("Phones of a cohort.", click.IntRange(3, 4096)),
    dead=opt("Percent of the phones that drop out after they sent shares.", click.IntRange(0, 30)),
    support=opt("Also run the last cohort with 1/N of the elements sent.", Choice((1, 4, 16, 64))),
    most=opt("Also run a cohort of so many phones without Flower.", click.IntRange(3, 4096)),
    whole=opt("The largest cohort of which every phone of Flower's runs; of larger ones one does.", COUNT),
    flower_python=opt("A Python interpreter with flwr.  [default: this one]", metavar="PYTHON"),
)
INGEST = Options(
    IngestBenchConfig,
    preset="The model's shape.",
    phones=opt(kind=COUNT),
    crowds=opt("Phones that send small updates at once while /healthz is requested.", COUNT, name="--crowd"),
    at_once=opt("Parallel uploads when measuring MB/s.", click.IntRange(2)),
    rounds=opt("Runs of each, in turn.", COUNT),
)
UPLOAD = Options(
    UploadBenchConfig,
    users=opt("A phone's text to train on; repeat it for each phone.", INPUT, name="--user"),
    rehearsal="General text, half of what each phone trains on.",
    tests=opt("A text to measure perplexity on; may be repeated.", INPUT, name="--test"),
    codecs=names(
        CODECS,
        ",".join(CODECS),
        f"Codecs to compare; changes of perplexity are relative to the first. {IN_GROUPS}",
        show_default="all",
    ),
    phones=opt("Number of phones with random deltas, without --user.", COUNT),
    threads=opt(kind=THREADS),
)
PREDICT = Options(
    PredictBenchConfig,
    text="A text to type, and to measure keystroke savings on.",
    words=opt("Words to time.", COUNT),
    context=opt("Words before each.", COUNT),
    threads=opt(kind=THREADS),
)
TOKENIZE = Options(
    TokenizeBenchConfig,
    text="A text to measure instead of made ones.",
    rounds=opt("Runs of each, in turn.", COUNT),
)
SIMULATE = Options(
    SimulateBenchConfig,
    phones=opt("Phones of a round.", COUNT),
    text_bytes=opt("Text of each; as much general text is added.", COUNT),
    workers=opt("Phones that train at a time, one thread each.  [default: one a core]", COUNT, default=None),
    flower_python=opt("A Python interpreter with flwr[simulation].  [default: this one]", metavar="PYTHON"),
    rounds=opt("Runs of each, in turn.", COUNT),
)
# What `phone-cost --full-size` counts.
FULL_SIZES = (PRESET, "keyboard-10mb", "keyboard-5mb", "gboard-cifg")


@click.group()
def bench() -> None:
    """Benchmark training and aggregation on this machine. Compare the ratios; absolute times depend on the machine."""


bench.add_command(epoch)


@bench.command()
@artifacts_option
@names_option("--backends", ("native", "ort", "torch"), "native,ort,torch", "Runtimes to compare in pairs")
@click.option("--output-sample", type=COUNT, metavar="N", help="Train all runtimes with an output sample of N words.")
@PARITY
@save_option
@output_options
def parity(
    console: Console,
    artifacts: Path | None,
    backends: Names,
    output_sample: int | None,
    save: Path | None,
    **options: Any,
) -> None:
    """Check that runtimes compute the same tensors and losses, training the same steps from the same weights.

    The exit code is 16 if the relative Frobenius error of a tensor, or the relative error of a loss, exceeds 1e-5.
    With clipping, ort is exempt, because it sums the norm in float32.
    """
    config = PARITY.take(options)
    if "native" in backends:
        build_on_first_use(console)
    entries = [
        dataclasses.replace(entry, output_sample=output_sample) for entry in selected_entries(backends, ("exact",))
    ]
    with artifacts_or_random(console, artifacts) as folder:
        result = bench_parity(folder, entries, config, console.say)
    finish(console, result, save)
    if result["differences"]:
        raise BenchError(f"bench: the runtimes do not compute the same: {'; '.join(result['differences'])}")


@bench.command()
@save_option
@output_options
def kernels(console: Console, save: Path | None) -> None:
    """Compare the engine's matrix products with NumPy's, and time its functions, in each instruction set.

    Set OPENBLAS_NUM_THREADS to the number of threads, for both.
    """
    build_on_first_use(console)
    finish(console, bench_kernels(say=console.say), save)


@bench.command()
@AGGREGATE
@save_option
@output_options
def aggregate(console: Console, save: Path | None, **options: Any) -> None:
    """Compare the fold with Flower's FedAvg on the same updates: seconds, memory, and whether the averages agree.

    The runs take turns, each in its own process. The exit code is 16 if the averages differ.
    """
    result = bench_aggregate(AGGREGATE.take(options), console.say)
    finish(console, result, save)
    if result["disagreements"]:
        raise BenchError(f"bench: the averages differ: {'; '.join(result['disagreements'])}")


@bench.command()
@MASKED
@save_option
@output_options
def masked(console: Console, save: Path | None, **options: Any) -> None:
    """Compare masked rounds with Flower's SecAgg+: seconds and bytes of a phone, CPU and memory of the server.

    At full size it takes some 20 minutes, 6 GB of memory and 1 GB of disk. The exit code is 16 if a sum that was
    unmasked is not the plain one.
    """
    config = MASKED.take(options)
    build_on_first_use(console)
    result = bench_masked(config, console.say)
    finish(console, result, save)
    if result["disagreements"]:
        raise BenchError(f"bench: {'; '.join(result['disagreements'])}")


@bench.command()
@INGEST
@save_option
@output_options
def ingest(console: Console, save: Path | None, **options: Any) -> None:
    """Measure a server under load: MB/s compared with a bare handler, memory, seconds to a new model.

    Also measures how long /healthz takes at most while many phones upload.

    At full size it takes a few minutes, and 10 GB of disk until it ends.
    """
    finish(console, bench_ingest(INGEST.take(options), console.say), save)


@bench.command()
@artifacts_option
@UPLOAD
@save_option
@output_options
def upload(console: Console, artifacts: Path | None, save: Path | None, **options: Any) -> None:
    """Compare the codecs: bytes of an update, seconds, and perplexity after a round.

    The phones train once. With each codec their updates are encoded, decoded, checked and averaged with equal
    weights, and the average is evaluated. Without --user the deltas are random and there is no perplexity.
    """
    config = UPLOAD.take(options)
    if config.tests and not config.users:
        raise click.UsageError("--test needs --user, the texts that phones train on")
    if config.rehearsal and not config.users:
        raise click.UsageError("--rehearsal needs --user, the texts to mix it with")
    if config.users:
        refuse("expected without --user, of which each is a phone's text", "phones")
        build_on_first_use(console)
    with artifacts_or_random(console, artifacts) as folder:
        finish(console, bench_upload(folder, config, console.say), save)


@bench.command()
@artifacts_option
@PREDICT
@save_option
@output_options
def predict(console: Console, artifacts: Path | None, save: Path | None, **options: Any) -> None:
    """Compare a keyboard's predictor, in float32 and int8, with Model.predict: time, memory, keystroke savings."""
    config = PREDICT.take(options)
    build_on_first_use(console)
    with artifacts_or_random(console, artifacts) as folder:
        finish(console, bench_predict(folder, config, console.say), save)


@bench.command()
@TOKENIZE
@save_option
@output_options
def tokenize(console: Console, save: Path | None, **options: Any) -> None:
    """Measure how fast text of many scripts becomes the ids of its words, in MB/s of CPU time."""
    config = TOKENIZE.take(options)
    build_on_first_use(console)
    finish(console, bench_tokenize(config, console.say), save)


@bench.command("phone-cost")
@click.option("--cpu", "cpus", multiple=True, default=("cortex-a53",), help="CPU name in qemu.")
@click.option("--full-size", is_flag=True, help="Also count the paper's and keyboards' models, in some 20 minutes.")
@click.option(
    "--against", type=INPUT, help="A saved result; fail if a token takes over 2 % more instructions than in it."
)
@save_option
@output_options
def phone_cost(console: Console, cpus: Names, full_size: bool, against: Path | None, save: Path | None) -> None:
    """Estimate training costs on a phone: instructions a token by qemu, cycles of the inner loop by llvm-mca.

    Models have random weights. The seconds of an epoch are a projection. The exit code is 16 if --against fails.
    """
    from phonograd.bench.phone_cost import SMALL, bench_phone, regressions
    from phonograd.bench.results import round_floats
    from phonograd.export.presets import preset_named

    paper = preset_named(PRESET).model
    with tempfile.TemporaryDirectory() as place:
        models = [SMALL, *(preset_named(name).model for name in FULL_SIZES if full_size)]
        folders = [random_artifacts(Path(place) / f"{number}", model) for number, model in enumerate(models)]
        document = bench_phone(folders, paper, cpus, console.say)
    kept = None if against is None else json.loads(against.read_text("utf-8"))
    finish(console, document, save)
    over = [] if kept is None else regressions(round_floats(document), kept)
    if over:
        raise BenchError(f"bench: {'; '.join(over)}")


@bench.command()
@click.option("--results", "folder", type=INPUT, help="A folder of saved results.  [default: the repository's own]")
@click.option("--out", type=OUTPUT, help="The page.  [default: RESULTS.md beside that folder]")
@output_options
def results(console: Console, folder: Path | None, out: Path | None) -> None:
    """Write the Markdown page of saved results (`--save` of the other benchmarks)."""
    from phonograd.bench.results import FOLDER, load_results, render
    from phonograd.device_runtime.base.files import write_bytes

    source = folder or FOLDER
    page = out or source.parent / "RESULTS.md"
    documents = load_results(source)
    write_bytes(page, render(documents).encode())
    console.result({"page": page, "results": list(documents)}, (str(page), [{"result": name} for name in documents]))


@bench.command()
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


@bench.command()
@artifacts_option
@SIMULATE
@save_option
@output_options
def simulate(console: Console, artifacts: Path | None, save: Path | None, **options: Any) -> None:
    """Compare a simulated round with Flower's simulation: seconds, CPU time and memory of all processes.

    The same model, phones and texts for all: random words by Zipf's law. The runs take turns, each in processes of its
    own. The exit code is 16 if the losses of the first round differ.
    """
    options["workers"] = options["workers"] or usable_cores()
    config = SIMULATE.take(options)
    build_on_first_use(console)
    with artifacts_or_random(console, artifacts) as folder:
        result = bench_simulate(folder, config, console.say)
    finish(console, result, save)
    if result["disagreements"]:
        raise BenchError(f"bench: the contestants do not train the same: {'; '.join(result['disagreements'])}")
