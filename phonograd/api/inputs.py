"""What callers may give: paths as text or Path, texts as files or as messages, a seed or a phone's name, engines."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from phonograd.device_runtime.base.errors import TextError, UsageError
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts, open_artifacts
from phonograd.device_runtime.formats.outputs import require_apart
from phonograd.device_runtime.text.messages import read_messages, split_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.seeds import random_seed, seed_of

StrPath: TypeAlias = str | os.PathLike[str]
# A file, one message a line; or the messages themselves.
Text: TypeAlias = StrPath | Sequence[str | bytes]


def artifacts_of(artifacts: Artifacts | StrPath) -> Artifacts:
    """The artifacts, opened and checked if a folder's path is given. Raises ArtifactsError."""
    return artifacts if isinstance(artifacts, Artifacts) else open_artifacts(Path(artifacts))


def vocabulary_of(artifacts: Artifacts) -> Vocabulary:
    """The vocabulary of an artifacts folder. Raises VocabularyError."""
    return Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)


def path_of(path: StrPath | None) -> Path | None:
    """A Path, or None as it is."""
    return None if path is None else Path(path)


def require_output(output: StrPath | None, *inputs: object, others: Iterable[Path] = (), folder: bool = False) -> None:
    """Raise UsageError or StorageError for an output that would destroy something else, as `require_apart` says.

    inputs: what callers gave, of which paths and opened artifacts count.
    """
    paths = [Path(one) for one in inputs if isinstance(one, str | os.PathLike)]
    paths += [one.folder for one in inputs if isinstance(one, Artifacts)]
    if output is not None:
        require_apart(Path(output), paths, others, folder)


def text_of(text: Text) -> Path | bytes:
    """A text as a file, or as bytes with a message a line. Raises TextError for one of no messages."""
    return Path(text) if isinstance(text, str | os.PathLike) else b"\n".join(messages_of(text))


def messages_of(text: Text) -> list[bytes]:
    """The messages of a text. Raises TextError for one that can't be read or holds none."""
    if isinstance(text, str | os.PathLike):
        return read_messages(Path(text))
    given = (message.encode() if isinstance(message, str) else message for message in text)
    messages = [message for lines in given for message in split_messages(lines)]
    if not messages:
        raise TextError(f"text: no words found in {len(text)} messages; expected at least one")
    return messages


def chosen_seed(seed: int | None, phone: str | None, base_sha256: Callable[[], str], round_number: int) -> int:
    """The seed that was given, else that of the phone's name, else a random one.

    Raises UsageError where both are given, or for a name that no phone can have.
    """
    if seed is not None and phone is not None:
        raise UsageError("`seed` and `phone` exclude each other; give one")
    if phone is not None and not PHONE_NAME.match(phone):
        raise UsageError(f"phone name: expected {PHONE_NAME_RULE}, found {phone[:80]!r}")
    if seed is not None:
        return seed
    return random_seed() if phone is None else seed_of(base_sha256(), round_number, phone)


Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def require_engine(engine: Engine) -> None:
    """Raise UsageError for a name that is no engine's."""
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r}: expected {' or '.join(ENGINES)}")


def workers_of(workers: int | None) -> int:
    """The number of workers: `workers`, or one a core."""
    return workers or usable_cores()
