"""`phonograd bench epoch`: training steps of several runtimes and kinds of models."""

import contextlib
from pathlib import Path
from typing import Any

import click

from phonograd.bench.contestants import (
    PEERS,
    TORCH_VARIANTS,
    BenchError,
    of_kind,
    selected_entries,
    with_output_sample,
)
from phonograd.bench.epoch import KINDS, EpochBenchConfig, bench_epoch
from phonograd.commands.bench_options import (
    PRESET,
    Names,
    artifacts_option,
    artifacts_or_random,
    finish,
    names_option,
    save_option,
)
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, THREADS, Choice, Options, opt, refuse
from phonograd.console import Console, output_options
from phonograd.device_runtime.engine.backend import PRECISIONS
from phonograd.export.presets import PRESETS

CONFIG = Options(EpochBenchConfig, steps=opt(kind=COUNT), threads=opt(kind=THREADS))


@click.command()
@artifacts_option
@click.option(
    "--preset",
    type=Choice(list(PRESETS)),
    help=f"In place of --artifacts: the model's shape.  [default: {PRESET}]",
)
@names_option("--backends", PEERS, "native,ort,torch", "Runtimes to compare; ratios are to the first")
@names_option(
    "--variants", TORCH_VARIANTS, "eager,lean,compiled", "Variants of the torch step; compiling takes a minute"
)
@click.option("--all-variants", is_flag=True, help="Run all --variants.")
@names_option("--precision", PRECISIONS, "fp32", "Precisions of backend native")
@names_option("--kinds", KINDS, KINDS[0], "Kinds of the preset; those after the first are run by native only")
@click.option(
    "--output-sample",
    type=COUNT,
    metavar="N",
    help="Run phonograd's backends and torch also with an output sample of N words.",
)
@CONFIG
@save_option
@output_options
def epoch(
    console: Console,
    artifacts: Path | None,
    preset: str | None,
    backends: Names,
    variants: Names,
    all_variants: bool,
    precision: Names,
    kinds: Names,
    output_sample: int | None,
    save: Path | None,
    **options: Any,
) -> None:
    """Compare training steps of several runtimes on the same windows, and with the machine's own matrix products.

    The runtimes take turns. Each has its own process, with the same malloc settings and threads, which is stopped
    while others run. A runtime that can't run here is reported as left out. The exit code is 16 if the losses differ.
    """
    if artifacts is not None and len(kinds) > 1:
        raise click.UsageError("--kinds are of a preset; give either --artifacts or several kinds")
    if artifacts is not None and preset is not None:
        raise click.UsageError("give either --artifacts or --preset")
    if all_variants:
        refuse("expected without --all-variants", "variants")
    entries = selected_entries(backends, TORCH_VARIANTS if all_variants else variants, precision)
    if output_sample is not None:
        entries += with_output_sample(entries, output_sample)
    entries += [entry for kind in kinds[1:] for entry in of_kind(entries, kind)]
    config = CONFIG.take(options)
    if "native" in backends:
        build_on_first_use(console)
    with contextlib.ExitStack() as stack:
        if artifacts is not None:
            folders = {kinds[0]: artifacts}
        else:
            folders = {
                kind: stack.enter_context(artifacts_or_random(console, None, kind, preset or PRESET)) for kind in kinds
            }
        result = bench_epoch(folders, entries, config, console.say)
    finish(console, result, save)
    if result["disagreements"]:
        raise BenchError(f"bench: the contestants do not compute the same: {'; '.join(result['disagreements'])}")
