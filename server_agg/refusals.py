"""Why the server refuses an update, and the HTTP status and title of each answer."""

from typing import ClassVar

from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, UpdateError


class RefusalError(UpdateError):
    """Base of the refusals; `status` is the HTTP status, which the ledger keeps too."""

    status: ClassVar[int]
    title: ClassVar[str]


class MalformedUpdateError(RefusalError):
    """The file is not an update: truncated, not a tensor file, no metadata, unknown codec."""

    status, title = 400, "Not an update"


class StaleUpdateError(RefusalError):
    """A sound update of another round or another base model."""

    status, title = 409, "Another round or base model"


class UploadEndedError(RefusalError):
    """The upload was given up while its bytes came: expired, terminated, or the phone announced another update."""

    status, title = 410, "The upload is over"


class UnknownRoundError(RefusalError):
    """No such round to go back to or to discard updates of, or its model is not kept."""

    exit_code = ServerRefusedError.exit_code
    status, title = 404, "No such round"


class RetryLaterError(RefusalError):
    """Nothing is wrong with the update but the time; `retry_seconds` from now there may be a place for the phone."""

    def __init__(self, message: str, retry_seconds: float):
        super().__init__(message)
        self.retry_seconds = retry_seconds


class LateUpdateError(RetryLaterError):
    """The update's round is over."""

    status, title = 409, "The round is over"


class RoundFullError(RetryLaterError):
    """As many phones take part in the round as may."""

    status, title = 409, "The round is full"


class NotSelectedError(RetryLaterError):
    """The server drew the round's phones, and this one is not among them; or it draws no more rounds."""

    status, title = 409, "Not drawn for this round"


class DuplicatePhoneError(RefusalError):
    """The phone already has another update in this round; a phone takes part once."""

    status, title = 409, "The phone took part already"


class InvalidUpdateError(RefusalError):
    """An update of this round whose tensors, values or claims do not fit the model."""

    status, title = 422, "The update does not fit the model"


class RequestError(PhonogradError):
    """A request refused before its body is looked at, or while it arrives; `status` is the HTTP status.

    `headers` go with the answer.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status
        self.headers: dict[str, str] = {}


class UploadInterruptedError(PhonogradError):
    """The phone went away before the whole body had arrived."""


def one_line(error: Exception | str) -> str:
    """An error's message as one printable line of at most 1000 characters: parts of it may come from a hostile file."""
    return "".join(character if character.isprintable() else "?" for character in str(error))[:1000]
