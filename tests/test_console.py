"""What commands print of foreign text: its control characters are shown."""

import io
import logging
from pathlib import Path

import click
import pytest

from phonograd.cli import phonograd
from phonograd.config.files import FILES
from phonograd.config.values import Config
from phonograd.console import NAMES, Console, complain, name_options, option_names, run
from phonograd.device_runtime.base.errors import ServerRefusedError
from phonograd.server_agg.log_format import TextFormatter, configure, event

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


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("serve", {"deadline_seconds": "--deadline-seconds", "epsilon_budget": "strategy.dp-fedavg.epsilon_budget"}),
        ("eval", {"threads": "--threads", "deadline_seconds": "deadline_seconds"}),
    ],
)
def test_a_message_names_a_commands_options_and_keys(command: str, names: dict[str, str]) -> None:
    found = phonograd.get_command(click.Context(phonograd), command)
    assert found is not None
    with click.Context(found) as context:
        if command in FILES:
            context.meta[NAMES] = Config(FILES[command](), None, (), {"strategy.name": "dp-fedavg"}).names()
        stream = io.StringIO()
        log, root = logging.getLogger("told"), logging.getLogger()
        handlers, level = root.handlers[:], root.level
        root.handlers[:] = []
        try:
            configure(stream, logging.INFO, "text", option_names())
            for setting, shown in names.items():
                assert name_options(f"raise `{setting}`!") == f"raise {shown}!"
                log.warning("raise `%s`", setting, extra=event("told"))
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == [*names.values()]
