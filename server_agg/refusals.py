"""Why the server refuses an update. Each class has one HTTP status, see http/problems.py."""

from device_runtime.errors import PhonogradError, UpdateError


class MalformedUpdateError(UpdateError):
    """The file is not an update: truncated, not a tensor file, no metadata, unknown codec."""


class StaleUpdateError(UpdateError):
    """A sound update of another round or another base model."""


class NotNowError(UpdateError):
    """Nothing is wrong with the update but the time; `retry_seconds` from now there may be a place for the phone."""

    def __init__(self, message: str, retry_seconds: float):
        super().__init__(message)
        self.retry_seconds = retry_seconds


class LateUpdateError(NotNowError):
    """The update's round is over."""


class RoundFullError(NotNowError):
    """As many phones take part in the round as may."""


class NotSelectedError(NotNowError):
    """The server drew the round's phones, and this one is not among them; or it draws no more rounds."""


class DuplicatePhoneError(UpdateError):
    """The phone already has another update in this round; a phone takes part once."""


class InvalidUpdateError(UpdateError):
    """An update of this round whose tensors, values or claims do not fit the model."""


class RequestError(PhonogradError):
    """A request refused before its body is looked at, or while it arrives; `status` is the HTTP status.

    `headers` go with the answer.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status
        self.headers: dict[str, str] = {}


class UploadBrokenError(PhonogradError):
    """The phone went away before the whole body had arrived."""


def one_line(error: Exception) -> str:
    """An error's message as one printable line of at most 1000 characters: parts of it may come from a hostile file."""
    return "".join(character if character.isprintable() else "?" for character in str(error))[:1000]
