"""A phone's part in a masked round: the native library says what to send, and takes the answers. See phonograd.h."""

import ctypes
import json
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec.structs import asdict

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import TookPartError
from phonograd.device_runtime.base.settings import Count, Settings
from phonograd.device_runtime.engine.c_abi import Handle, load_library
from phonograd.device_runtime.engine.header import new

Action = Literal["send", "upload", "done"]


class Company(Settings, frozen=True):
    """Phones with whom one takes part in masked rounds: those that the vendor certified, and how many."""

    vendor: Annotated[
        str | None,
        about(
            "The vendor's public key: phones without its certificate are refused.  [default: phones are known by the "
            "key that they had first]"
        ),
    ] = None
    min_cohort: Annotated[Count, about("The fewest phones that a phone takes part with.")] = 50


class PhoneMasking(Company, frozen=True, kw_only=True):
    """A phone's settings for masked rounds.

    state: the folder of this phone at one server, with a round's secrets and what it knows of rounds
    identity: the file of its key
    certificate: the vendor's, of its name and key, in hex
    """

    state: Path
    identity: Path
    certificate: str | None = None


def require_new_model(masking: PhoneMasking, base_sha256: str, number: int) -> None:
    """Raise TookPartError where MaskedPhone would refuse the model of round `number`, before it is trained in vain."""
    try:
        history = json.loads((masking.state / "history.json").read_bytes())
        sent = base_sha256 in history["bases"] and history["last_round"] != number
    except (OSError, ValueError, KeyError, TypeError):
        return  # the file is missing, or MaskedPhone says what is wrong with it
    if sent:
        raise TookPartError(
            f"{masking.state}: this phone has sent a masked update of model {base_sha256}, which round {number} has "
            "again: a second sum with it, less the first, could give it away. It takes part again once the server has "
            "another model"
        )


class Request(msgspec.Struct, frozen=True):
    """A phone's next action. send: POST `body`, JSON, to `path` of the server; upload: send the file `path`."""

    action: Action
    path: str
    body: str

    @property
    def file(self) -> Path:
        """Path of the masked update to upload."""
        return Path(self.path)


class MaskedPhone(Handle):
    """A phone's part in a round, continued after a kill. One thread at a time; two threads inside.

    grid: the grid update that training wrote. Raises UsageError for settings, TookPartError if the phone did in this
    round or a later one, StateError for a folder that is in use or damaged, UpdateError for a file that is no grid
    update, StorageError.
    """

    def __init__(self, settings: PhoneMasking, phone: str, grid: Path, number: int):
        options = new("pg_masked_options", **asdict(settings), phone=phone, grid=grid, round=number)
        super().__init__(load_library(), "masked", options)

    def request(self) -> Request:
        """Return what to do now; the same until `take`."""
        return self._next(None)

    def take(self, answer: str | None) -> None:
        """Take the body of the answer; None after an upload.

        Raises UpdateError for an answer with which the phone may not continue: it has then left the round.
        """
        self._next(answer or "")

    def _next(self, answer: str | None) -> Request:
        (address,) = self._library.call("pg_masked_next", self.handle, answer)
        return Request(**json.loads(ctypes.string_at(address)))


def new_identity(path: Path) -> str:
    """Make a key in a file that must not exist; its public key in hex. Raises UsageError, StorageError."""
    return _hex("pg_identity_new", 32, path)


def public_identity(path: Path) -> str:
    """The public key of a key file, in hex. Raises UsageError."""
    return _hex("pg_identity_public", 32, path)


def certify(vendor: Path, phone: str, identity: str) -> str:
    """The certificate of a phone's name and public key by the vendor's key file, in hex. Raises UsageError."""
    return _hex("pg_identity_certify", 64, vendor, phone, identity)


def _hex(function: str, nbytes: int, *given: object) -> str:
    text = ctypes.create_string_buffer(2 * nbytes + 1)
    load_library().call(function, *given, text)
    return text.value.decode()
