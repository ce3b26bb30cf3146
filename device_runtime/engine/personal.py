"""The user's own words, for a predictor's suggestions: the native engine's pg_personal."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.c_abi import Handle, encode_text, load_library


@dataclass(frozen=True)
class Learned:
    """Contents of a store: counts by word, the most frequent first; vetoed words; size of the file in bytes."""

    words: Mapping[str, int]
    vetoed: tuple[str, ...]
    nbytes: int


class PersonalWords(Handle):
    """A user's words, how often they wrote them, and after which words: FORMAT.md, "Personal words". Not thread-safe.

    It learns by `Predictor.learn`. path: its file, which several processes may have, or None. Raises StateError for a
    damaged one, and UsageError if it does not exist, unless it is `new`.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, new: bool = False):
        if path is not None and not new and not Path(path).exists():
            raise UsageError(f"{path}: does not exist; `phonograd personal learn` makes it")
        super().__init__(load_library(), "personal", path)

    def save(self) -> None:
        """Write the file, atomically, and take over what other processes saved.

        Raises StorageError, StateError if it was damaged meanwhile, and UsageError without a path.
        """
        self._library.call("pg_personal_save", self.handle)

    def delete(self, word: str) -> bool:
        """Delete a word and what followed it; it may be learned again. Returns whether it was there."""
        (deleted,) = self._library.call("pg_personal_delete", self.handle, encode_text(word))
        return bool(deleted)

    def veto(self, word: str) -> None:
        """Delete a word and never learn it again. Raises UsageError for more than 4,096 words."""
        self._library.call("pg_personal_veto", self.handle, encode_text(word))

    def allow(self, word: str) -> bool:
        """Take a veto back: the word is learned when it is written again. Returns whether there was one."""
        (allowed,) = self._library.call("pg_personal_allow", self.handle, encode_text(word))
        return bool(allowed)

    def forget(self) -> None:
        """Delete everything, vetoes too."""
        self._library.call("pg_personal_forget", self.handle)

    def list(self) -> Learned:
        """Read what was learned."""
        document = json.loads(self._library.text("pg_personal_list", self.handle))
        words = {entry["word"]: entry["count"] for entry in document["words"]}
        return Learned(words, tuple(document["vetoed"]), document["bytes"])
