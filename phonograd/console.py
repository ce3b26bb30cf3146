"""How commands speak: tables and progress for people, JSON for programs, one line on stderr for errors."""

import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from phonograd.device_runtime.base.errors import OutOfMemoryError, PhonogradError, StorageError
from phonograd.device_runtime.base.visible import visible, with_options
from phonograd.pages import format_value, to_words

# Called with (done, in all, note).
Progress = Callable[[int, int, str], None]
Rows = Sequence[Mapping[str, object]]
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WIDEST = 200  # of a table off a terminal
READER_GONE = 141  # as a shell reports a tool that SIGPIPE ended

# Where a command with a configuration file keeps the names of its settings, in its context's `meta`.
NAMES = "phonograd.names"


@dataclass(frozen=True)
class Console:
    """Output of a command: stdout carries the result alone (a table or JSON), stderr all else."""

    as_json: bool
    quiet: bool

    def result(self, document: Any, *tables: tuple[str, Rows]) -> None:
        """Print the result: `document` as JSON, or the titled tables."""
        if self.as_json:
            click.echo(json.dumps(document, indent=2, allow_nan=False, default=str))
            return
        for title, rows in tables:
            print_table(title, rows)

    def text(self, document: Any, text: str) -> None:
        """Print a result that is prose: `document` as JSON, or the text."""
        if self.as_json:
            self.result(document)
        else:
            click.echo(visible(text.rstrip("\n")))

    def say(self, line: str) -> None:
        """A line for people, on stderr; nothing when quiet."""
        if not self.quiet:
            click.echo(visible(line), err=True)

    @contextlib.contextmanager
    def progress(self, title: str, counted: str) -> Iterator[Progress]:
        """A progress bar on stderr, from the first report on. Silent when quiet or not on a terminal.

        counted: what is done and in all, such as steps.
        """
        if self.quiet or not sys.stderr.isatty():
            yield _no_progress
            return
        from rich import progress as bars
        from rich.console import Console as Screen

        bar_columns = (
            bars.TextColumn("{task.description}"),
            bars.BarColumn(),
            bars.TextColumn("{task.completed:,}/{task.total:,} " + counted),
            bars.TimeRemainingColumn(),
            bars.TextColumn("{task.fields[note]}"),
        )
        bar = bars.Progress(*bar_columns, console=Screen(stderr=True), transient=True)
        task = bar.add_task(title, note="")

        def show(done: int, total: int, note: str) -> None:
            bar.start()  # once; another bar, such as a build's, may have come before
            bar.update(task, completed=done, total=total, note=visible(note))

        try:
            yield show
        finally:
            bar.stop()


def _no_progress(done: int, total: int, note: str) -> None:
    """A progress function that shows nothing: stderr is no terminal."""


def print_table(title: str, rows: Rows) -> None:
    """A table on stdout; columns are the keys of the rows as they appear, numbers are set right.

    No word is broken: on a terminal that is too narrow columns leave, and a line below says which.
    """
    from rich.console import Console as Screen
    from rich.table import Table
    from rich.text import Text

    from phonograd.pages.columns import column_needs, column_widths, fitting_columns

    if not rows:
        click.echo(visible(f"{title}: none"))
        return
    cells = {key: [visible(format_value(row.get(key))) for row in rows] for key in {k: 0 for row in rows for k in row}}
    headings = {key: visible(key) for key in cells}
    # Off a terminal the width is unknown, but for COLUMNS: never cut a row that a script or a log may read.
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    screen = Screen(width=None if known else WIDEST)
    needs = {key: column_needs(headings[key], cells[key]) for key in cells}
    stay = fitting_columns(needs, screen.width if known else sys.maxsize)
    table = Table()
    for key, width in column_widths({key: needs[key] for key in stay}, screen.width).items():
        numbers = all(isinstance(row.get(key), int | float | None) for row in rows)
        justify: Literal["right", "left"] = "right" if numbers else "left"
        table.add_column(Text(headings[key]), justify=justify, overflow="fold", width=width)
    for row in zip(*(cells[key] for key in stay), strict=True):
        table.add_row(*map(Text, row))  # as it is: names may look like rich's markup
    screen.print(Text(visible(title), "table.title"))  # not the table's, which would be no wider than it
    screen.print(table, crop=False)
    if gone := [headings[key] for key in cells if key not in stay]:
        screen.print(Text(f"Not shown at this width: {', '.join(gone)}. --json has all."))


def figures(document: Mapping[str, object], title: str = "figure") -> Rows:
    """A table's rows of one result: its figures, in words, one below another."""
    return [{title: name, "value": value} for name, value in to_words(document).items()]


def side_by_side(results: Mapping[str, Mapping[str, object]]) -> Rows:
    """A table's rows of several results, by name: a column of each, with the standard errors of figures."""
    columns = {name: to_words(result) for name, result in results.items()}
    names = dict.fromkeys(figure for column in columns.values() for figure in column)
    return [{"figure": figure, **{name: column.get(figure) for name, column in columns.items()}} for figure in names]


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json and --quiet; the command receives a Console as `console`."""

    @functools.wraps(command)  # with the parameters declared so far
    def run_command(*args: Any, as_json: bool, quiet: bool, **options: Any) -> None:
        command(*args, console=Console(as_json, quiet), **options)

    quiet = click.option("--quiet", is_flag=True, callback=_name_options, help="No progress bars or remarks on stderr.")
    run_command = quiet(run_command)
    return click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")(run_command)


def _name_options(context: click.Context, _parameter: click.Parameter, quiet: bool) -> bool:
    """The callback of --quiet, which every command has: from here on, errors name the command's options."""
    context.with_resource(_options_named())
    return quiet


@contextlib.contextmanager
def _options_named() -> Iterator[None]:
    try:
        yield
    except PhonogradError as error:
        error.args = (name_options(str(error)),)
        raise


def name_options(message: str) -> str:
    """A library's message, with the running command's option for each setting that it names in backticks."""
    return with_options(message, option_names())


def option_names() -> dict[str, str]:
    """The running command's options and keys, by the settings that they are, and by their own names."""
    context = click.get_current_context()
    options = [param for param in context.command.params if isinstance(param, click.Option)]
    names = {option.opts[0].removeprefix("--").replace("-", "_"): option.opts[0] for option in options}
    names |= {str(option.name): _names_of(option) for option in options}
    names |= context.meta.get(NAMES, {})
    return names


def _names_of(option: click.Option) -> str:
    return f"{option.opts[0]} or {option.envvar}" if option.envvar else option.opts[0]


def run(group: click.Command, arguments: list[str] | None = None) -> int:
    """Run the command line (None: the process's own) and return its exit code; an error becomes one line on stderr.

    SIGPIPE stays ignored, as Python has it: pipes to adb and connections to servers break, and that is an error to
    handle. Where stdout's reader is gone, the command ends without a word, with the code of other tools that it ends.
    """
    code: Any
    try:
        code = group.main(arguments, prog_name="phonograd", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # a group by itself: what follows is its help
        code = error.exit_code
    except (click.ClickException, PhonogradError) as error:
        complain(error.format_message() + _help_of(error) if isinstance(error, click.ClickException) else str(error))
        code = OutOfMemoryError.exit_code if _lacks_descriptors(error) else error.exit_code
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        code = 130
    except MemoryError:
        complain("out of memory; end other work, or use fewer --threads or a smaller model")
        code = OutOfMemoryError.exit_code
    except (SystemExit, BrokenPipeError) as error:  # click and rich make the one of the other
        code = 0 if getattr(error, "code", None) == 0 else READER_GONE  # 0: click has completed a shell's line
        if code != 0:
            _leave_stdout()
    except Exception as error:
        code = _unforeseen(error)
    return code if isinstance(code, int) else 0


def _unforeseen(error: Exception) -> int:
    """The exit code of a full disk, also behind stdout, of too few file descriptors, or of a bug."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        _leave_stdout()
        complain(f"{error.filename or 'stdout'}: cannot write: {error.strerror}; free space")
        return StorageError.exit_code
    if os.environ.get("PHONOGRAD_DEBUG"):
        raise error
    if _lacks_descriptors(error):
        complain(f"{error}; close other files or programs, and try again")
        return OutOfMemoryError.exit_code
    complain(f"a bug: {type(error).__name__}: {error} (PHONOGRAD_DEBUG=1 shows the traceback; report it)")
    return 1


def _lacks_descriptors(error: Exception) -> bool:
    """Whether the system had no more file descriptors. Every message tells the system's reason; some errors, such as of
    a library that does not load, have no number.
    """
    return any(os.strerror(number) in str(error) for number in (errno.EMFILE, errno.ENFILE))


def _leave_stdout() -> None:
    """What is left in stdout's buffer can't be written: Python would say so once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def complain(message: str) -> None:
    """One line on stderr, whatever line breaks a list of choices or a file's name brought in."""
    click.echo(f"phonograd: {visible(' '.join(line.strip() for line in message.splitlines()))}", err=True)


def _help_of(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" ({context.command_path} --help)" if context else ""
