"""`phonograd demo`: the main job, end to end."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.commands.options import COUNT, THREADS, Options, opt, own_options
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options
from phonograd.demo.run import DemoConfig, demo_table, run_demo

SIZES = Options(
    DemoConfig,
    preset="The model's shape.",
    vocabulary=opt(kind=click.IntRange(3)),
    **dict.fromkeys(("pretrain_steps", "phones", "phones_at_once"), opt(kind=COUNT)),
    threads_per_phone=opt(kind=THREADS),
)


@click.command()
@own_options
@SIZES
@output_options
def demo(
    console: Console,
    out: Annotated[Path, opt("Folder to work in; must be empty or new.", OUT_FOLDER)] = Path("demo-out"),
    report: Annotated[Path, opt("Where to write the HTML report.", OUTPUT)] = Path("demo-report.html"),
    corpus: Annotated[Path | None, "A folder from `phonograd corpus fetch`, in place of fetching."] = None,
    **sizes: Any,
) -> None:
    """Run one federated round at full size on real text, compared with the paper (some minutes on 2 cores)."""
    from phonograd.demo.corpus import Corpus
    from phonograd.demo.report import write_report
    from phonograd.device_runtime.base.errors import StorageError
    from phonograd.device_runtime.base.files import storage_errors

    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out}: not empty; remove it or choose another --out")
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    config = SIZES.take(sizes)
    document = run_demo(out, config, Corpus(corpus) if corpus else None, console.say)
    write_report(report, document)
    console.result({**dataclasses.asdict(config), **document}, ("One round", demo_table(document)))
    console.say(f"plots: {report}")
