"""`phonograd docs`: every page, by its name; messages name pages so; a shell completes commands and pages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.commands.docs import FOLDER, listed_pages
from tests.support.command_line import Run

ROOT = Path(__file__).parents[2]
PACKAGES = ("phonograd", "android_harness", "bench", "device_runtime", "export", "server_agg")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Files that a command writes or that only a checkout has.
OF_A_CHECKOUT = ("docs/results.md", "docs/android.md")


def messages() -> Iterator[str]:
    """The strings of the packages' code but docstrings, and the docstrings of commands, which are their help."""
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        documented = [node for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
        docstrings = {id(node.body[0].value) for node in documented if isinstance(node.body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield node.value
        if path.is_relative_to(ROOT / "phonograd/commands") or path.name == "cli.py":
            yield from (text for node in documented if (text := ast.get_docstring(node)))


def test_each_page_is_listed_and_printed_as_it_is(phono: Run) -> None:
    pages = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
    assert sorted(row["page"] for row in phono("docs", "--json").document["pages"]) == pages
    assert phono("docs", "server").out == (FOLDER / "server.md").read_text("utf-8")
    assert phono("docs", "sever").code == 2


def test_messages_name_pages_that_there_are() -> None:
    texts = [*messages()]
    named = {name for text in texts for name in re.findall(r"phonograd docs ([a-z][\w-]*)", text)}
    assert {"privacy", "exit-codes", "first-phone"} <= named <= {*listed_pages()}
    files = {name for text in texts for name in re.findall(r"docs/[\w-]+\.md", text)}
    assert files <= {*OF_A_CHECKOUT}


def test_a_shell_completes_commands_and_pages(phono: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PHONOGRAD_COMPLETE", "bash_complete")
    for words, completed in (("phonograd self", "plain,selftest\n"), ("phonograd docs wat", "plain,watching\n")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        done = phono()
        assert (done.code, done.out) == (0, completed)
