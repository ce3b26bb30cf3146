"""The user's own words, for a predictor's suggestions: the native engine's pg_personal."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.engine.c_abi import Handle, encoded, load_library


@dataclass(frozen=True)
class Learned:
    """What a store holds: words, how often each was written, the most frequent first; vetoed words; its file's size."""

    words: Mapping[str, int]
    vetoed: tuple[str, ...]
    nbytes: int


class PersonalWords(Handle):
    """What a user wrote, how often, and after which words: FORMAT.md, "Personal words". Not thread-safe.

    It learns by `Predictor.learn`. path: its file, which need not exist, or None; one process has it at a time. Raises
    StateError for a damaged file.
    """

    def __init__(self, path: Path | None = None):
        super().__init__(load_library(), "personal", path)

    def save(self) -> None:
        """Write the file, atomically. Raises StorageError, and UsageError without a path."""
        self._library.call("pg_personal_save", self.handle)

    def delete(self, word: str) -> bool:
        """Delete a word and what followed it; it may be learned again. Returns whether it was there."""
        (deleted,) = self._library.call("pg_personal_delete", self.handle, encoded(word))
        return bool(deleted)

    def veto(self, word: str) -> None:
        """Delete a word and never learn it again. Raises UsageError for more than 4,096 words."""
        self._library.call("pg_personal_veto", self.handle, encoded(word))

    def forget(self) -> None:
        """Delete everything, vetoes too."""
        self._library.call("pg_personal_forget", self.handle)

    def list(self) -> Learned:
        """What was learned."""
        document = json.loads(self._library.text("pg_personal_list", self.handle))
        words = {entry["word"]: entry["count"] for entry in document["words"]}
        return Learned(words, tuple(document["vetoed"]), document["bytes"])
