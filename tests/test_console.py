"""What commands print of foreign text: its control characters are shown."""

import dataclasses
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from phonograd.cli import phonograd
from phonograd.console import Console, complain, name_options, option_names, run
from phonograd.device_runtime.base.errors import ServerRefusedError
from phonograd.device_runtime.training.round import RoundSettings
from phonograd.server_agg.log_format import TextFormatter, configure, event
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.simulation.settings import SimulationSettings

HOSTILE = "a\x1b[2Jb\x07\x7f\x9b\u202e\u2066\u200fc\rd"
SHOWN = r"a\x1b[2Jb\x07\x7f\x9b\u202e\u2066\u200fc\rd"


def refuse() -> None:
    raise ServerRefusedError(HOSTILE.replace("\r", "\\r"))


def test_nothing_foreign_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(as_json=False, quiet=False)
    console.result({}, (HOSTILE, [{"key" + HOSTILE: HOSTILE}]), (HOSTILE, []))
    console.text({}, HOSTILE)
    console.say(HOSTILE)
    complain(HOSTILE.replace("\r", "\\r"))  # which is the end of a line
    assert run(click.Command("x", callback=refuse), []) == 8
    printed = capsys.readouterr()
    assert not set(printed.out + printed.err) & set(HOSTILE) - set("abcd[2J")
    assert printed.out.count(SHOWN) == 5
    assert printed.err.splitlines() == [SHOWN, f"phonograd: {SHOWN}", f"phonograd: {SHOWN}"]


def test_nothing_foreign_in_a_log_is_obeyed_by_a_terminal() -> None:
    record = logging.LogRecord("name", logging.INFO, str(Path()), 1, "%s\n", (HOSTILE,), None)
    assert TextFormatter("%(message)s").format(record) == f"{SHOWN}\n"


def test_words_and_lines_stay(capsys: pytest.CaptureFixture[str]) -> None:
    words = "می\u200cخواهم\tnaïve 👩\u200d💻\nline"
    Console(as_json=False, quiet=False).text({}, words)
    assert capsys.readouterr().out == f"{words}\n"


def settings_of(record: type) -> Iterator[str]:
    for name, annotation in get_type_hints(record).items():
        yield name
        for kind in (annotation, *get_args(annotation)):
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                yield from settings_of(kind)


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("serve", ServerSettings),
        ("export", None),
        ("simulate", SimulationSettings),
        ("train", RoundSettings),
        ("eval", None),
    ],
)
def test_a_command_shows_options_and_no_settings_in_backticks(name: str, record: type | None) -> None:
    command = phonograd.get_command(click.Context(phonograd), name)
    assert command is not None
    settings = {*(settings_of(record) if record else ()), "renames", "ignore", "deadline_seconds", "epsilon_budget"}
    with click.Context(command):
        options = option_names()
        for setting in settings:
            assert name_options(f"raise `{setting}`!") == f"raise {options.get(setting, setting)}!"
        stream = io.StringIO()
        log, root = logging.getLogger("told"), logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.handlers[:] = []
        try:
            configure(stream, logging.INFO, "text", options)
            log.warning("raise `%s`", "deadline_seconds", extra=event("told"))
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    assert stream.getvalue().endswith(f"WARNING raise {options.get('deadline_seconds', 'deadline_seconds')}\n")
    if name == "serve":
        assert options["deadline_seconds"].startswith("--") and options["epsilon_budget"].startswith("--")
