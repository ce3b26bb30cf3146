"""Former names of commands and options work, and one line on stderr names today's."""

from pathlib import Path

import click
import pytest

from phonograd.cli import COMMANDS, FORMER, phonograd
from tests.support.command_line import Run, Workplace

SERVER = ("--server", "http://127.0.0.1:9")
PLACES = ("--artifacts", "a", "--state", "b")


@pytest.mark.parametrize(("former", "today"), FORMER.items())
def test_a_command(phono: Run, former: str, today: str) -> None:
    asked, expected = phono(former, "--help"), phono(today, "--help")
    assert (asked.code, asked.out) == (0, expected.out)
    assert expected.err == ""
    (hint,) = asked.err.splitlines()
    assert hint.startswith(f"phonograd: warning: phonograd {former} is now phonograd {today};")
    assert former not in COMMANDS


@pytest.mark.parametrize(
    ("command", "former", "today"),
    [
        (("phone-bench", "a"), ("--silence", "3"), ("--heartbeat-timeout", "3")),
        (("phone-bench", "a"), ("--fail-over=10%",), ("--max-slowdown=10%",)),
        (("phone-bench", "a"), ("--pin",), ("--pin-threads",)),
        (("phone-bench", "a"), ("--no-pin",), ("--no-pin-threads",)),
        (("phone-round", "a", *SERVER), ("--silence=3",), ("--heartbeat-timeout=3",)),
        (("phone-round", "a", *SERVER), ("--tokens", "t"), ("--token-file", "t")),
        (("serve", *PLACES), ("--clip-norm", "2"), ("--dp-clip-norm", "2")),
        (("serve", *PLACES), ("--delta", "1e-7"), ("--dp-delta", "1e-7")),
        (("bench", "upload"), ("--codecs", "rot-q4+zstd"), ("--codecs", "rot-q4", "--zstd")),
        (("train", "a", "--user", "b"), ("--codec", "top-rows+zstd"), ("--codec", "top-rows", "--zstd")),
        (
            ("update", "encode", "a", "--base", "b", "--tokens", "1", "--out", "c"),
            ("--codec", "rows-f32+zstd"),
            ("--codec", "rows-f32", "--zstd"),
        ),
    ],
)
def test_an_option(
    command: tuple[str, ...], former: tuple[str, ...], today: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    expected, silent = parsed(command, today, capfd)
    asked, hint = parsed(command, former, capfd)
    if "--zstd" not in today:  # there it is the command that puts the two together: the next test
        assert asked == expected
    assert silent == ""
    assert hint.count("\n") == 1
    assert f"{former[0].partition('=')[0]} " in hint
    assert f" is now {today[0].partition('=')[0]}" in hint


def parsed(
    command: tuple[str, ...], options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> tuple[dict[str, object], str]:
    """What click makes of the options, and what it says meanwhile."""
    context = click.Context(phonograd)
    found: click.Command = phonograd
    words = list(command)
    while isinstance(found, click.Group):
        below = found.get_command(context, words.pop(0))
        assert below is not None
        found = below
    capfd.readouterr()
    with found.make_context("phonograd", [*words, *options]) as made:
        return made.params, capfd.readouterr().err


def test_the_codec_is_the_same(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    base = workplace.artifacts / "weights.safetensors"
    line = ("update", "encode", base, "--base", base, "--tokens", 5, "--seed", 1, "--quiet")
    former = phono(*line, "--codec", "rot-q4+zstd", "--out", tmp_path / "former")
    today = phono(*line, "--codec", "rot-q4", "--zstd", "--out", tmp_path / "today")
    assert (former.code, today.code, today.err) == (0, 0, "")
    assert (tmp_path / "former").read_bytes() == (tmp_path / "today").read_bytes()
    assert "--codec rot-q4+zstd is now --codec rot-q4 --zstd;" in former.err
    assert phono("update", "show", tmp_path / "today", "--json").document["codec"] == "rot-q4+zstd"


def test_a_codec_that_is_none(phono: Run) -> None:
    done = phono("train", "a", "--user", "b", "--codec", "zip+zstd")
    assert done.code == 2
    assert "'zip+zstd' is not one of" in done.err
