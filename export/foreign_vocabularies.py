"""Lists of words as other tools keep them: plain, in the columns of a table, in a pickle."""

import codecs
import pickletools
import re
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import VocabularyError

_ENCODINGS = {  # UTF-32 begins as UTF-16 does
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_SENTENCE_PIECE = re.compile(rb"\n[\x03-\x1f]\n[\x01-\x1f]")  # a ModelProto's first piece
_COUNTED = re.compile(rb"([^\t]+(?=\t)|[^\t ]+)[\t ](0|[1-9]\d{0,14})(?:\t(.*))?")
_LIST_OPERATIONS = {"PROTO", "FRAME", "EMPTY_LIST", "MARK", "APPEND", "APPENDS", "STOP"}


@dataclass(frozen=True)
class WordList:
    """Words in the order of a model's rows. vectors: it is a table of words' numbers, which may lack `<unk>`.

    counts: of each word, where the table has whole numbers alone; forms: of each word, where it is one of our files.
    """

    words: list[bytes]
    vectors: bool = False
    counts: list[int] | None = None
    forms: list[bytes] | None = None


def read_words(path: Path, data: bytes) -> WordList:
    """The words of a file: one a line, first in each line of numbers (GloVe, word2vec, SentencePiece's .vocab),
    a pickled list (fastai's itos).

    Of a pickle no code is run. Raises VocabularyError for a file of another kind.
    """
    if codec := next((name for mark, name in _ENCODINGS.items() if data.startswith(mark)), None):
        try:
            data = data.decode(codec).encode()
        except UnicodeDecodeError as error:
            raise VocabularyError(
                f"{path}: {codec} expected, as it begins, found {error.reason}; save it again"
            ) from error
    if data.startswith(b"\x80"):
        return WordList(_pickled_strings(path, data))
    if _SENTENCE_PIECE.match(data):
        raise VocabularyError(
            f"{path}: one word a line expected, found a SentencePiece model; list its words with: "
            f"spm_export_vocab --model={path} --output=NEW"
        )
    if b"\0" in data:
        raise VocabularyError(
            f"{path}: text expected, found a binary file; list its words one a line, in the order of their rows "
            "(gensim: model.wv.save_word2vec_format(NEW))"
        )
    lines = [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")]
    return _parse_counted(lines) or _first_column(lines) or WordList(lines)


def _parse_counted(lines: list[bytes]) -> WordList | None:
    """The words and forms of a file with counts; None if it is not one."""
    rows = [_COUNTED.fullmatch(line) for line in lines]
    found = [row for row in rows if row]
    if len(found) < len(rows):
        return None
    return WordList([row[1] for row in found], True, [int(row[2]) for row in found], [row[3] or b"" for row in found])


def _first_column(lines: list[bytes]) -> WordList | None:
    """The words of a table whose other columns are numbers; None if it is not one."""
    header = lines[0].split()
    if len(header) == 2 and all(map(bytes.isdigit, header)) and int(header[0]) == len(lines) - 1:
        lines = lines[1:]  # of word2vec: how many words, and numbers for each
    separator = b"\t" if lines and b"\t" in lines[0] else b" "
    rows = [line.rstrip().rsplit(separator, lines[0].rstrip().count(separator)) for line in lines]
    if not rows or len(rows[0]) == 1 or not all(len(row) == len(rows[0]) and _is_number(row[-1]) for row in rows):
        return None
    return WordList([row[0] for row in rows], vectors=True)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _pickled_strings(path: Path, data: bytes) -> list[bytes]:
    """The strings of a pickled list, read as data: a word that stands there again is a reference to the first."""
    words: list[str] = []
    memo: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(data):
            if "UNICODE" in operation.name:
                words.append(str(argument))
            elif operation.name == "MEMOIZE" or "PUT" in operation.name:
                memo.append(words[-1] if words else "")
            elif "GET" in operation.name:
                words.append(memo[int(str(argument))])
            elif operation.name not in _LIST_OPERATIONS:
                raise ValueError(f"{operation.name}, of something else")
    except (ValueError, IndexError, TypeError) as error:
        raise VocabularyError(
            f"{path}: a pickled list of words expected, found {error}; write them one a line"
        ) from error
    return [word.encode("utf-8", "replace") for word in words]
