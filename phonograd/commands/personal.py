"""`phonograd personal learn|import|list|delete|veto|allow|forget`: the user's own words, for suggestions."""

import dataclasses
import re
import zipfile
import zlib
from pathlib import Path
from typing import Annotated
from unicodedata import category

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.shared_options import PREDICTION_WEIGHTS
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import TextError, UsageError
from phonograd.device_runtime.base.files import read_bytes
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.device_runtime.text.messages import read_messages

_MOST_BYTES = 1 << 24  # unpacked; a dictionary of 4,000 words has 100 KB
_GBOARD, _COLUMNS = "# Gboard Dictionary", "# Gboard Dictionary format:"
# A row that `adb shell content query --uri content://user_dictionary/words` prints; a word may have commas.
_ROW = re.compile(r"Row: \d+ (?:.*?, )?word=(.+?)(?:, (?:_id|frequency|locale|appid|shortcut)=.*)?\Z")
SHOWN = 20  # words, after learning
EXPECTED = "Gboard's dictionary.txt, or its zip, or the rows of Android's user dictionary, expected"


@click.group()
def personal() -> None:
    """Learn the user's own words into a file, show them, and delete them.

    The file stays on the phone: nothing that trains, or makes updates, reads it. `predict`, and `eval --kss`, take it
    by --personal.
    """


@personal.command()
@own_options
@output_options
def learn(
    console: Console,
    artifacts: Annotated[Path, arg()],
    file: Annotated[Path, arg()],
    texts: Annotated[tuple[Path, ...], opt("A text of the user's to learn; may be repeated.", name="--text")],
    weights: Annotated[Path | None, PREDICTION_WEIGHTS] = None,
) -> None:
    """Learn a user's texts into FILE, which is made if it is missing, beside the model in ARTIFACTS, which suggests."""
    messages = [("", message.decode("utf-8", "replace") + "\n") for path in texts for message in read_messages(path)]
    _learn(console, artifacts, file, weights, messages)


@personal.command("import")
@own_options
@output_options
def import_(
    console: Console,
    artifacts: Annotated[Path, arg()],
    file: Annotated[Path, arg()],
    dictionary: Annotated[Path, arg()],
    weights: Annotated[Path | None, PREDICTION_WEIGHTS] = None,
) -> None:
    """Learn the words of another keyboard's DICTIONARY into FILE, made if it is missing, beside the model in ARTIFACTS.

    It is Gboard's dictionary.txt, or the zip that Gboard exports, or what `adb shell content query --uri
    content://user_dictionary/words` prints of Android's user dictionary.
    """
    # What the user saved on purpose is known at once, though it has digits, and follows nothing that is written.
    times = {entry: 3 if set(entry) & set("@0123456789") else 1 for entry in dictionary_words(dictionary)}
    entries = [("\n<unk> <unk>", entry) for entry, count in times.items() for _ in range(count)]
    _learn(console, artifacts, file, weights, entries)


def _learn(console: Console, artifacts: Path, file: Path, weights: Path | None, pieces: list[tuple[str, str]]) -> None:
    """Learn pieces of text, each behind another that is only read."""
    from phonograd.api.model import open_predictor

    folder = open_artifacts(artifacts)
    build_on_first_use(console)
    with (
        PersonalWords(file, new=True) as words,
        open_predictor(folder, weights=weights, personal=words) as predictor,
    ):
        with console.progress("learning", "messages") as show:
            for done, (before, piece) in enumerate(pieces, 1):
                predictor.feed(before)
                predictor.learn(piece)
                show(done, len(pieces), "")
        words.save()
        _show(console, words, SHOWN)


@personal.command("list")
@own_options
@output_options
def list_(console: Console, file: Annotated[Path, arg()]) -> None:
    """Show the words in FILE, how often each was written, and those that are never learned."""
    with _open_words(console, file) as words:
        _show(console, words)


@personal.command()
@own_options
@output_options
def delete(console: Console, file: Annotated[Path, arg()], word: Annotated[str, arg()]) -> None:
    """Delete WORD from FILE, and what followed it. It is learned again when it is written again."""
    with _open_words(console, file) as words:
        if not words.delete(word):
            raise UsageError(f"{file}: has no word {word!r}; `phonograd personal list` shows what it has")
        words.save()


@personal.command()
@own_options
@output_options
def veto(console: Console, file: Annotated[Path, arg()], word: Annotated[str, arg()]) -> None:
    """Delete WORD from FILE, and never learn it again."""
    with _open_words(console, file) as words:
        words.veto(word)
        words.save()


@personal.command()
@own_options
@output_options
def allow(console: Console, file: Annotated[Path, arg()], word: Annotated[str, arg()]) -> None:
    """Take a veto of WORD in FILE back. It is learned again when it is written again."""
    with _open_words(console, file) as words:
        if not words.allow(word):
            raise UsageError(f"{file}: has no veto of {word!r}; `phonograd personal list` shows those that it has")
        words.save()


@personal.command()
@own_options
@output_options
def forget(console: Console, file: Annotated[Path, arg()]) -> None:
    """Delete all words in FILE, and what is never learned."""
    with _open_words(console, file) as words:
        words.forget()
        words.save()


def _open_words(console: Console, file: Path) -> PersonalWords:
    build_on_first_use(console)
    return PersonalWords(file)


def _show(console: Console, words: PersonalWords, most: int | None = None) -> None:
    """Show the words, or the `most` written ones, marks left out: every text has these."""
    learned = words.list()
    shown = [word for word in learned.words if most is None or not all(category(one)[0] == "P" for one in word)][:most]
    rows: list[dict[str, object]] = [{"word": word, "written": learned.words[word]} for word in shown]
    console.result(dataclasses.asdict(learned), ("Personal words", rows))
    if len(shown) < len(learned.words):
        console.say(f"the most written of {len(learned.words)} words; `phonograd personal list` shows all")
    for word in learned.vetoed:
        console.say(f"never learned: {word}")


def dictionary_words(path: Path) -> list[str]:
    """The words and phrases of a dictionary, as they stand there; shortcuts, languages and frequencies are left out.

    Raises TextError if it can't be read, has none, or is another kind of file.
    """
    try:
        data = read_bytes(path)
        if data.startswith(b"PK"):
            with zipfile.ZipFile(path) as packed, packed.open("dictionary.txt") as file:
                data = file.read(_MOST_BYTES + 1)
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, RuntimeError) as error:
        raise TextError(f"{path}: cannot be read ({error}); {EXPECTED}") from error
    if len(data) > _MOST_BYTES:
        raise TextError(f"{path}: at most {_MOST_BYTES} bytes expected, found more; give fewer words")
    lines = [line.rstrip("\r") for line in data.decode("utf-8-sig", "replace").split("\n")]
    if lines[0].startswith(_GBOARD):
        words = _of_gboard(lines)
    else:
        words = [match[1] for match in map(_ROW.match, lines) if match]
    if not words:
        raise TextError(f"{path}: {EXPECTED}, found no word in {len(lines)} lines, the first is {lines[0][:80]!a}")
    return words


def _of_gboard(lines: list[str]) -> list[str]:
    columns = next((line.removeprefix(_COLUMNS).split("\t") for line in lines if line.startswith(_COLUMNS)), [])
    at = columns.index("word") if "word" in columns else 1  # behind the shortcut, which may be empty
    rows = [line.split("\t") for line in lines if not line.startswith(_GBOARD)]
    return [row[at] for row in rows if len(row) > at and row[at].strip()]
