"""`phonograd selftest`: whether this machine computes what others do."""

import dataclasses
import faulthandler

import click

from phonograd.commands.native import build_on_first_use
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import BuildError, MissingExtraError, SelfTestError


@click.command()
@output_options
def selftest(console: Console) -> None:
    """Check the engine, text, codecs, links, the predictor and whole rounds on this machine, within a minute.

    Needs no network and no files. The last line says what ran where: send it to whoever maintains a port.
    """
    import contextlib

    from phonograd.selftest.run import run_selftest

    if not faulthandler.is_enabled():  # an instruction that this CPU lacks ends the process: it says in which check
        faulthandler.enable()
    with contextlib.suppress(BuildError, MissingExtraError):  # the self-test reports it
        build_on_first_use(console)
    with console.progress("self-test", "checks") as show:
        outcome = run_selftest(show)
    table = [{**dataclasses.asdict(row), "passed": "yes" if row.passed else "NO"} for row in outcome.rows]
    console.result(dataclasses.asdict(outcome), ("Self-test", table))
    if not console.as_json:
        click.echo(outcome.line)
    if outcome.failed:
        raise SelfTestError(f"self-test: {outcome.failed} of {len(outcome.rows)} checks failed; send the line above")
