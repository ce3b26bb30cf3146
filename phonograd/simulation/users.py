"""Texts keyed by user, and who of them trains, is kept for evaluation, or has too little text."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from phonograd.device_runtime.base.documents import FieldError, parse, read
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.base.files import regular_file
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.text.messages import read_messages, split_messages, tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary

Messages = list[bytes]
Part = Literal["table", "rounds", "mix"]


class _Line(msgspec.Struct, frozen=True):
    """A line of a JSONL file; other fields are ignored."""

    user: Annotated[str, msgspec.Meta(min_length=1)]
    text: str


@dataclass(frozen=True)
class Population:
    """Users by what they do in a simulation. training: take part in rounds; testing: their texts are only evaluated on;
    left_out: their text has fewer than `least_tokens` tokens, with which a phone can train.
    """

    training: Mapping[str, Messages]
    testing: Mapping[str, Messages]
    left_out: Sequence[str]
    least_tokens: int


def read_users(path: Path) -> dict[str, Messages]:
    """The messages of each user, in the order of the file.

    path: a JSONL file of {"user": NAME, "text": TEXT} lines, of which a user may have many; or a folder with a text
    NAME.txt for each user. Raises TextError, which names the line of a file.
    """
    if path.is_dir():
        users = {_name_of(text): read_messages(text) for text in sorted(path.glob("*.txt"))}
    else:
        users = _from_lines(path)
    if not users:
        raise TextError(f"{path}: no user with text; expected {{'user': NAME, 'text': TEXT}} lines, or NAME.txt files")
    return users


def _name_of(path: Path) -> str:
    try:
        return path.stem.encode().decode()
    except UnicodeEncodeError as error:
        raise TextError(f"{path}: a user's name in UTF-8 expected; rename the file") from error


def _from_lines(path: Path) -> dict[str, Messages]:
    users: dict[str, Messages] = {}
    try:
        with regular_file(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    entry = _line(path, number, line)
                    users.setdefault(entry.user, []).extend(split_messages(entry.text.encode()))
    except OSError as error:
        raise TextError(f"{path}: cannot be read: {error.strerror}; expected a JSONL file or a folder") from error
    return {user: messages for user, messages in users.items() if messages}


def _line(path: Path, number: int, line: bytes) -> _Line:
    try:
        return read(_Line, parse(line))
    except (FieldError, UnicodeError) as error:
        raise TextError(
            f"{path}: line {number}: {error}; expected one object a line, {{'user': NAME, 'text': TEXT}}"
        ) from error


def part_of(user: str) -> Part:
    """What a user is for where models are compared, by the first byte of the name's SHA-256. table: below 128, to be
    measured on; rounds: below 160, whose phones train; mix: the others, whose text models may be pre-trained on.
    """
    first = hashlib.sha256(user.encode()).digest()[0]
    return "table" if first < 128 else "rounds" if first < 160 else "mix"


def least_tokens(training: TrainingConfig, user_share: float, rehearsal: Messages) -> int:
    """The tokens of its own with which a phone fills a window."""
    return math.ceil(training.minibatch * training.bptt * (user_share if rehearsal else 1.0))


def populate(
    users: Mapping[str, Messages], vocabulary: Vocabulary, least_tokens: int, test_users: int, seed: int
) -> Population:
    """Choose `test_users` users at random for evaluation; of the others, those with `least_tokens` tokens train.

    Raises TextError if nobody is left to train.
    """
    names = sorted(users)
    SplitMix64(stream_of(seed, "test users")).shuffle(names)
    enough = [name for name in names if len(vocabulary.encode(users[name])) >= least_tokens]
    testing = enough[:test_users]
    training = sorted(enough[test_users:])
    if not training:
        raise TextError(
            f"users: none left to train, {len(users)} users, {len(enough)} with {least_tokens} tokens or more, "
            f"{len(testing)} kept for evaluation; give more text, or a smaller `test_users`"
        )
    return Population(
        {name: users[name] for name in training},
        {name: users[name] for name in sorted(testing)},
        sorted(set(names) - set(enough)),
        least_tokens,
    )


def text_slice(messages: Messages, text_bytes: int, earlier: int, least_tokens: int = 1) -> tuple[Messages, bool]:
    """What a user wrote for its `earlier`-th round (from 0): the next messages of at least `text_bytes` bytes.

    Bytes need not be words, as in a pasted file: the messages also have `least_tokens` tokens, if all together do. A
    text that ends begins again. Returns the messages, and whether some of them were trained on before.
    """
    place, passed = 0, False
    taken: Messages = []
    for _ in range(earlier + 1):
        taken, nbytes, tokens = [], 0, 0
        while (nbytes < text_bytes or tokens < least_tokens) and len(taken) < len(messages):
            taken.append(messages[place % len(messages)])
            nbytes += len(taken[-1]) + 1
            tokens += len(tokenize(taken[-1])) + 1
            place += 1
        passed = place > len(messages)
    return taken, passed
