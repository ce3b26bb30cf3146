"""`phonograd reproduce`: the papers' tables and figures."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, refuse_all_but
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options


@click.command()
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="List the experiments and the inputs that each needs.")
@click.option(
    "--page", type=OUTPUT, help="Make the page of all results with its pictures, in a checkout docs/results.md."
)
@click.option("--small", is_flag=True, help="In seconds, on small texts and a small model made on the spot.")
@click.option("--artifacts", type=INPUT, help="The general model's artifacts folder.")
@click.option("--users", type=INPUT, help="As in phonograd simulate.")
@click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
@click.option("--general-test", type=INPUT, help="General text to evaluate on.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=PATH", help="Another input; may be repeated.")
@click.option("--texts", default="", help="Which texts these are, in words, for the page.", show_default=False)
@click.option("--work", type=OUT_FOLDER, help="Folder of finished parts; the same command resumes from it.")
@click.option(
    "--out", type=OUTPUT, help="The result.  [default: phonograd/papers/results/NAME.json for a full run in a checkout]"
)
@click.option("--workers", type=COUNT, default=1, help="Processes or threads to use.")
@output_options
def reproduce(
    console: Console,
    name: str | None,
    listed: bool,
    page: Path | None,
    small: bool,
    inputs: tuple[str, ...],
    texts: str,
    work: Path | None,
    out: Path | None,
    workers: int,
    **named: Path | None,
) -> None:
    """Measure a table or figure of the papers again: experiment NAME.

    A full run takes its texts and model by the options; --list says which. The result has figures only, a value for
    each seed. A small run fails (exit code 27) if its figures do not show what the experiment claims.
    """
    from phonograd.device_runtime.base.errors import UsageError
    from phonograd.papers.result import results_folder

    if sum([name is not None, listed, page is not None]) != 1:
        raise click.UsageError("give a NAME, --list or --page")
    if name is None:
        refuse_all_but("expected with an experiment's NAME", "listed", "page")
    if listed:
        rows = _experiments()
        console.result(rows, ("Experiments", rows))
        return
    if page is not None:
        folder = results_folder()
        if folder is None:
            raise UsageError("--page: the results are in a source checkout; none found")
        from phonograd.papers.pictures import write_page

        write_page(page, folder)
        console.say(f"wrote {page}")
        return
    assert name is not None
    given = {key.replace("_", "-"): path for key, path in named.items() if path is not None} | dict(map(_named, inputs))
    if small and given:
        raise click.UsageError(f"--small makes its own inputs; leave out --{next(iter(given))}")
    _run(console, name, small, given, texts, work, out, workers)


def _run(
    console: Console,
    name: str,
    small: bool,
    given: dict[str, Path],
    texts: str,
    work: Path | None,
    out: Path | None,
    workers: int,
) -> None:
    from phonograd.device_runtime.base.documents import written
    from phonograd.device_runtime.base.files import require_writable
    from phonograd.papers.claims import checked, require_all
    from phonograd.papers.experiment import load
    from phonograd.papers.page import rows_of
    from phonograd.papers.result import require_not_full, results_folder, write_result
    from phonograd.papers.run import require_inputs, run

    experiment = load(name)
    if not small:
        require_inputs(name, experiment, given)
    folder = results_folder()
    if out is None and folder is not None and not small:
        out = folder / f"{name}.json"
    if out is not None:
        require_writable(out)
        if small:
            require_not_full(out)
    build_on_first_use(console)
    with contextlib.ExitStack() as resources:
        place = work or Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="phonograd-")))
        with console.progress(name) as show:
            result = run(name, place, small=small, given=given, texts=texts, workers=workers, progress=show)
    claims = checked(experiment, result)
    if out is not None:
        write_result(out, result)
        console.say(f"wrote {out}")
    shown = [{"claim": one.says(len(result.seeds)), "holds": one.holds} for one in claims]
    tables = _in_groups(rows_of(experiment, result))
    console.result(
        {**written(result), "claims": shown}, *((experiment.title, rows) for rows in tables), ("Claims", shown)
    )
    if small:
        require_all(name, claims)


def _in_groups(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Tables of up to three figures, which fit a terminal, with the rows that have any of them."""
    figures = list(dict.fromkeys(key.rpartition(": ")[0] for key in rows[0] if key))
    for first in range(0, len(figures), 3):
        wanted = ("", *figures[first : first + 3])
        cells = [{key: value for key, value in row.items() if key.rpartition(": ")[0] in wanted} for row in rows]
        yield [row for row in cells if any(value is not None for key, value in row.items() if key)]


def _experiments() -> list[dict[str, str]]:
    from phonograd.papers.experiment import flag, load, names

    rows = []
    for name in names():
        one = load(name)
        inputs = [f"{flag(key)}: {what}" for key, what in one.inputs.items()]
        inputs += [f"{flag(key)}: {what} (optional)" for key, what in one.optional_inputs.items()]
        rows.append({"name": name, "title": one.title, "inputs": "; ".join(inputs)})
    return rows


def _named(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise click.UsageError(f"--input: NAME=PATH expected, found {text!r}")
    return name, INPUT.convert(path, None, click.get_current_context())
