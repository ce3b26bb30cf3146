"""Users' own words as other keyboards keep them: Gboard's personal dictionary, Android's user dictionary."""

import re
import zipfile
import zlib
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.files import read_bytes

_MOST_BYTES = 1 << 24  # unpacked; a dictionary of 4,000 words has 100 KB
_GBOARD, _COLUMNS = "# Gboard Dictionary", "# Gboard Dictionary format:"
# A row that `adb shell content query --uri content://user_dictionary/words` prints; a word may have commas.
_ROW = re.compile(r"Row: \d+ (?:.*?, )?word=(.+?)(?:, (?:_id|frequency|locale|appid|shortcut)=.*)?\Z")
EXPECTED = "Gboard's dictionary.txt, or its zip, or the rows of Android's user dictionary, expected"


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
