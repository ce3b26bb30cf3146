"""`phonograd docs`: the pages of the documentation, which the wheel brings."""

import re
import sys
from pathlib import Path

import click

import phonograd
from phonograd.commands.options import Choice
from phonograd.console import Console, output_options

# The wheel's folder, or the checkout's.
_PACKAGE = Path(phonograd.__file__).parent
FOLDER = next(folder for folder in (_PACKAGE / "docs", _PACKAGE.parent / "docs") if (folder / "README.md").is_file())


def listed_pages() -> dict[str, str]:
    """What each page is for, by its name, as the list of pages has it."""
    text = (FOLDER / "README.md").read_text("utf-8")
    return dict(re.findall(r"^\| \[([\w-]+)\.md\]\(.+?\) \| (.+?) \|$", text, re.M))


@click.command()
@click.argument("page", required=False, metavar="[PAGE]", type=Choice(list(listed_pages())))
@output_options
def docs(console: Console, page: str | None) -> None:
    """Print PAGE of the documentation, such as `server`; without PAGE, list the pages."""
    if page is None:
        rows = [{"page": name, "read it to": what} for name, what in listed_pages().items()]
        console.result({"pages": rows}, ("Pages", rows))
        return
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    if console.as_json or not sys.stdout.isatty():
        console.text({"page": page, "text": text}, text)
        return
    from rich.console import Console as Screen
    from rich.markdown import Markdown

    Screen().print(Markdown(text, hyperlinks=False))
