"""`phonograd reproduce`: the papers' tables and figures."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, arg, opt, own_options, refuse_all_but
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.commands.shared_options import REHEARSAL, USERS
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import require_writable


def _complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    from phonograd.papers.experiment import names

    return [name for name in names() if name.startswith(typed)]


@click.command()
@own_options
@output_options
def reproduce(
    console: Console,
    name: Annotated[str | None, arg(required=False, shell_complete=_complete)] = None,
    listed: Annotated[bool, opt("List the experiments and the inputs that each needs.", name="--list")] = False,
    page: Annotated[
        Path | None,
        opt("Make the page of all results with its pictures, in a checkout docs/results.md.", OUTPUT),
    ] = None,
    small: Annotated[bool, "In seconds, on small texts and a small model made on the spot."] = False,
    artifacts: Annotated[Path | None, "The general model's artifacts folder."] = None,
    users: Annotated[Path | None, USERS] = None,
    rehearsal: Annotated[Path | None, REHEARSAL] = None,
    general_test: Annotated[Path | None, "General text to evaluate on."] = None,
    inputs: Annotated[
        tuple[str, ...],
        opt("Another input, {seed} standing for each seed; may be repeated.", name="--input", metavar="NAME=PATH"),
    ] = (),
    texts: Annotated[str, opt("Which texts these are, in words, for the page.", show_default=False)] = "",
    work: Annotated[Path | None, opt("Folder of finished parts; the same command resumes from it.", OUT_FOLDER)] = None,
    out: Annotated[
        Path | None,
        opt("The result.  [default: phonograd/papers/results/NAME.json for a full run in a checkout]", OUTPUT),
    ] = None,
    workers: Annotated[int, opt("Processes or threads to use.", COUNT)] = 1,
) -> None:
    """Measure a table or figure of the papers again: experiment NAME.

    A full run takes its texts and model by the options; --list says which. The result has figures only, a value for
    each seed. A small run fails (exit code 27) if its figures do not show what the experiment claims.
    """
    from phonograd.papers.experiment import load
    from phonograd.papers.page import rows_of
    from phonograd.papers.result import require_not_full, results_folder, write_result
    from phonograd.papers.run import require_inputs, run
    from phonograd.papers.verdicts import judge, require_all

    if sum([name is not None, listed, page is not None]) != 1:
        raise click.UsageError("give a NAME, --list or --page")
    folder = results_folder()
    if name is None:
        refuse_all_but("expected with an experiment's NAME", "listed", "page")
        if page is not None:
            _write_page(console, page, folder)
        else:
            console.result(rows := _experiments(), ("Experiments", rows))
        return
    named = {"artifacts": artifacts, "users": users, "rehearsal": rehearsal, "general-test": general_test}
    given = {key: path for key, path in named.items() if path is not None} | dict(map(_parse_input, inputs))
    if small and given:
        raise click.UsageError(f"--small makes its own inputs; leave out --{next(iter(given))}")
    experiment = load(name)
    if not small:
        require_inputs(name, experiment, given)
    if out is None and folder is not None and not small:
        out = folder / f"{name}.json"
    if out is not None:
        require_writable(out)
        if small:
            require_not_full(out)
    build_on_first_use(console)
    with contextlib.ExitStack() as resources:
        place = work or Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="phonograd-")))
        with console.progress(name, "parts") as show:
            result = run(name, place, small=small, given=given, texts=texts, workers=workers, progress=show)
    claims = judge(experiment, result)
    if out is not None:
        write_result(out, result)
        console.say(f"wrote {out}")
    shown = [
        {"claim": one.claim.says, "verdict": one.verdict, "ours": one.ours, "paper": one.paper, "on": one.evidence}
        for one in claims
    ]
    tables = ((experiment.title, rows) for rows in _in_groups(rows_of(experiment, result)))
    console.result({**document_of(result), "claims": shown}, *tables, ("Claims", shown))
    if small:
        require_all(name, claims)


def _write_page(console: Console, page: Path, results: Path | None) -> None:
    if results is None:
        raise UsageError("--page: the results are in a source checkout; none found")
    from phonograd.papers.pictures import write_page

    write_page(page, results)
    console.say(f"wrote {page}")


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


def _parse_input(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise click.UsageError(f"--input: NAME=PATH expected, found {text!r}")
    from phonograd.papers.run import OF_SEED

    return name, Path(path) if OF_SEED in path else INPUT.convert(path, None, click.get_current_context())
