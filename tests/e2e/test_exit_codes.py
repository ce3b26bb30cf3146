"""What docs/exit-codes.md promises to programs: exit codes, one line on stderr, and --json and --quiet everywhere."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click
import pytest

import phonograd.commands
from phonograd.cli import phonograd as group
from phonograd.commands.options import THREADS
from phonograd.device_runtime.base.errors import PhonogradError, UpdateError
from phonograd.device_runtime.engine.c_abi import ERRORS
from tests.support.command_line import Workplace

ROOT = Path(__file__).parents[2]
# What no class stands for: success, a bug, what ends a contest of a bench or a process, and signals.
NO_CLASS = {0, 130, 141, 143}
# Adapters need engines of other environments, and raise what the packages below them do.
NO_ERRORS_OF_THEIR_OWN = (".__main__", ".peers.", ".adapters.")


def documented_codes(path: Path) -> list[int]:
    """The codes in the table of exit codes of a page, in its order."""
    table = path.read_text("utf-8").split("| code | meaning |" if "src" in path.parts else "| exit code | meaning |")[1]
    rows = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    return [int(code) for row in rows for code in row.split(",")]


def kinds() -> set[type[PhonogradError]]:
    """Every class of error in the packages."""
    for module in pkgutil.walk_packages(phonograd.__path__, "phonograd.", onerror=lambda _: None):
        if not any(part in module.name for part in NO_ERRORS_OF_THEIR_OWN):
            importlib.import_module(module.name)
    found, new = set[type[PhonogradError]](), {PhonogradError}
    while new:
        found |= new
        new = {below for kind in new for below in kind.__subclasses__()} - found
    return {kind for kind in found if not kind.__module__.startswith("tests.")}


def test_readme_names_the_code_of_every_error_and_no_other() -> None:
    codes = documented_codes(ROOT / "docs/exit-codes.md")
    assert len(codes) == len(set(codes)) > 20
    assert set(codes) == {kind.exit_code for kind in kinds()} | NO_CLASS


def test_no_two_kinds_of_error_share_a_code() -> None:
    """Except for special cases, the phone's storage, which is as this machine's, and what a server would refuse."""
    first: dict[int, type[PhonogradError]] = {}
    for kind in sorted(kinds() - {PhonogradError}, key=lambda kind: (len(kind.__mro__), kind.__qualname__)):
        if "exit_code" not in vars(kind) or kind.__name__ in (
            "PhoneStorageError",
            "RegistryError",
            "UnknownRoundError",
        ):
            continue
        assert kind.exit_code not in first, (kind, first[kind.exit_code])
        first[kind.exit_code] = kind
    assert first[7] is UpdateError


def test_the_phones_codes_are_those_of_the_command_line() -> None:
    codes = documented_codes(ROOT / "device_runtime/native/src/phone/README.md")
    assert set(codes) <= set(documented_codes(ROOT / "docs/exit-codes.md"))
    header = (ROOT / "device_runtime/native/include/phonograd.h").read_text("utf-8")
    enum = header.split("enum {")[1].split("}")[0]
    statuses = {name: int(code) for name, code in re.findall(r"^  PG_(\w+) = (\d+)", enum, re.MULTILINE)}
    assert {kind.__name__.removesuffix("Error").upper(): code for code, kind in ERRORS.items()} == {
        name.replace("_", ""): code for name, code in statuses.items() if name not in ("OK", "BUG")
    }
    core = (ROOT / "device_runtime/native/src/base/error.h").read_text("utf-8")
    assert {name.upper(): int(code) for name, code in re.findall(r"^  (\w+) = (\d+),", core, re.MULTILINE)} == statuses
    assert set(codes) == set(statuses.values()) | {130, 143}


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*path, name))


COMMANDS = dict(leaves(group, ()))


def test_every_command_takes_json_and_quiet() -> None:
    for name, command in COMMANDS.items():
        assert {"--json", "--quiet"} <= {option for one in command.params for option in one.opts}, name


def test_every_commands_threads_are_1_to_256() -> None:
    kinds = {
        name: option.type
        for name, command in COMMANDS.items()
        for option in command.params
        if not {"--threads", "--threads-per-phone"}.isdisjoint(option.opts)
    }
    assert {"eval", "predict", "demo"} <= kinds.keys()
    assert [name for name, kind in kinds.items() if kind is not THREADS] == []
    assert (THREADS.min, THREADS.max) == (1, 256)


BUG = """
import phonograd.device_runtime.formats.manifest
def broken(*arguments, **options):
    raise ZeroDivisionError("oops")
phonograd.device_runtime.formats.manifest.open_artifacts = broken
from phonograd.__main__ import main
main()
"""


@pytest.mark.parametrize(("debug", "traced"), [({}, False), ({"PHONOGRAD_DEBUG": "1"}, True)])
def test_a_traceback_is_for_those_who_ask_for_it(debug: dict[str, str], traced: bool, tmp_path: Path) -> None:
    line = [sys.executable, "-c", BUG, "inspect", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "PHONOGRAD_DEBUG"} | debug
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert ("Traceback" in done.stderr) == traced
    assert (done.stderr.count("\n") == 1) == (not traced)
    assert "ZeroDivisionError: oops" in done.stderr


def shown_to(stdout: IO[bytes] | int, *line: object) -> tuple[int, str]:
    command = [sys.executable, "-m", "phonograd", *map(str, line)]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    return done.returncode, done.stderr


def test_a_full_disk_behind_stdout_and_a_reader_that_has_gone(workplace: Workplace) -> None:
    line = ("inspect", workplace.artifacts)
    with Path("/dev/full").open("wb") as full:
        assert shown_to(full, *line) == (11, "phonograd: stdout: cannot write: No space left on device; free space\n")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert shown_to(writer, *line, "--json") == (141, "")
    finally:
        os.close(writer)
