"""A phone's part in a masked round: what it sends next, and what it takes from the server. See phonograd.h."""

from pathlib import Path
from typing import Literal, NamedTuple

from phonograd.device_runtime.engine.c_abi import Handle, load_library
from phonograd.device_runtime.engine.header import new
from phonograd.device_runtime.masked.settings import PhoneSettings

Action = Literal["send", "upload", "done"]
_ACTIONS: tuple[Action, ...] = ("send", "upload", "done")


class Request(NamedTuple):
    """What a phone does now. send: POST `body`, JSON, to `path` of the server; upload: send the file `path`."""

    action: Action
    path: str
    body: str


class MaskedPhone(Handle):
    """A phone's part in a round, or its going on with it after a kill. One thread at a time.

    Raises UsageError for settings, StateError if the phone took part in this round already, UpdateError for a file that
    is no grid update, StorageError.
    """

    def __init__(self, settings: PhoneSettings, grid: Path, round_number: int):
        options = new("pg_masked_options", **vars(settings), grid=grid, round=round_number)
        super().__init__(load_library(), "masked", options)

    def request(self) -> Request:
        """What to do now; the same until `take`."""
        (found,) = self._library.call("pg_masked_request", self.handle)
        return Request(_ACTIONS[found.action], found.path.decode(), found.body.decode())

    def take(self, answer: str | None) -> None:
        """The body of the answer; None after an upload.

        Raises UpdateError for an answer that the phone may not go on with: it has then left the round.
        """
        self._library.call("pg_masked_take", self.handle, answer)


def new_identity(path: Path) -> str:
    """Make a key in a file that must not exist. Returns the public key in hex. Raises UsageError, StorageError."""
    return load_library().text_out("pg_identity_new", 65, path)
