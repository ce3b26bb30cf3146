"""`phonograd demo`: the main job, end to end."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from phonograd.commands.options import COUNT
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options
from phonograd.demo.run import DemoConfig, demo_table, run_demo

DEFAULTS = DemoConfig()


@click.command()
@click.option("--out", type=OUT_FOLDER, default=Path("demo-out"), help="Folder to work in; must be empty or new.")
@click.option("--report", type=OUTPUT, default=Path("demo-report.html"), help="Where to write the HTML report.")
@click.option("--corpus", type=INPUT, help="A folder from `phonograd corpus fetch`, in place of fetching.")
@click.option("--preset", default=DEFAULTS.preset, help="The model's shape.")
@click.option("--vocabulary", type=click.IntRange(3), default=DEFAULTS.vocabulary)
@click.option("--pretrain-steps", type=COUNT, default=DEFAULTS.pretrain_steps)
@click.option("--phones", type=COUNT, default=DEFAULTS.phones)
@click.option("--phones-at-once", type=COUNT, default=DEFAULTS.phones_at_once)
@click.option("--threads-per-phone", type=COUNT, default=DEFAULTS.threads_per_phone)
@output_options
def demo(console: Console, out: Path, report: Path, corpus: Path | None, **sizes: Any) -> None:
    """Run one federated round at full size on real text, compared with the paper (some minutes on 2 cores)."""
    from phonograd.demo.corpus import Corpus
    from phonograd.demo.report import write_report
    from phonograd.device_runtime.base.errors import StorageError
    from phonograd.device_runtime.base.files import storage_errors

    if out.exists() and any(out.iterdir()):
        raise StorageError(f"{out}: not empty; remove it or choose another --out")
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    config = DemoConfig(**sizes)
    document = run_demo(out, config, Corpus(corpus) if corpus else None, console.say)
    write_report(report, document)
    console.result({**dataclasses.asdict(config), **document}, ("One round", demo_table(document)))
    console.say(f"plots: {report}")
