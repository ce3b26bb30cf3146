"""What commands print of foreign text: its control characters are shown."""

import io
import logging
import re
from pathlib import Path

import click
import pytest

from phonograd.cli import phonograd
from phonograd.config.files import FILES
from phonograd.config.values import Config
from phonograd.console import NAMES, Console, complain, name_options, option_names, run
from phonograd.device_runtime.base.errors import ServerRefusedError
from phonograd.pages import format_value, to_words
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
        ("report", {"token": "--token or PHONOGRAD_TOKEN"}),
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
    assert [line.partition("raise ")[2] for line in stream.getvalue().splitlines()] == [*names.values()]


TABLE = {
    "round": "12",
    "kept back": "0 B",
    "fingerprint": "31b6657eb8378c6f",
    "up": "22.7 kB",
    "why": "a reason that is long enough to be prose, cut between words",
}


def printed_at(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")  # rich asks no dumb one for its width
    Console(as_json=False, quiet=False).result({}, ("Rounds", [TABLE]))
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


def test_columns_leave_where_a_terminal_is_narrow_what_says_nothing_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for width, gone in ((80, ""), (50, "kept back"), (40, "kept back, why"), (30, "kept back, up, why")):
        table, _, told = printed_at(width, monkeypatch, capsys).partition("Not shown at this width: ")
        assert " ".join(told.split()).partition(". ")[0] == gone
        assert max(map(len, table.splitlines())) <= width
        for name, cell in TABLE.items():
            shown = name not in gone.split(", ")
            assert all(word in table for word in name.split()) is shown
            assert (cell if name != "why" else "prose,") in table or not shown


def test_a_pipe_is_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for columns, widest in (("60", 60), ("", 200)):
        monkeypatch.setenv("COLUMNS", columns)
        Console(as_json=False, quiet=False).result({}, ("Rounds", [TABLE | {"why": TABLE["why"] * 5}]))
        found = max(map(len, capsys.readouterr().out.splitlines()))
        assert widest - 20 < found <= widest


def test_a_cell_that_is_wider_than_the_terminal_is_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TABLE, "round", "1" * 70)
    shown = printed_at(60, monkeypatch, capsys)
    assert "1" * 30 in shown and TABLE["fingerprint"] in shown


def test_figures_have_the_digits_that_their_errors_leave() -> None:
    row: dict[str, object] = {
        "a": 33944.13,
        "a_error": 390.0,
        "b": 0.02817,
        "b_error": 0.0073,
        "c": 5.0,
        "c_error": 0.0,
    }
    assert to_words(row) == {"a": "33,940 ± 390", "b": "0.0282 ± 0.0073", "c": "5 ± 0.00"}
    shares: dict[str, object] = {"kss": 0.1492, "kss_error": 0.0065, "user_share": 1.0, "top1_with_unknown": None}
    assert [*to_words(shares).items()] == [
        ("keystrokes saved", "14.9 ± 0.7 %"),
        ("user's share of the tokens", "100.0 %"),
        ("top-1 with unknown words", None),
    ]
    facts = {"peak_rss_bytes": 62_400_000, "nbytes": 7, "precision": "fp32"}
    assert to_words(facts) == {"peak memory, MB": 62.4, "bytes": 7, "precision": "fp32"}
    assert format_value("31" * 32) == "31" * 6
