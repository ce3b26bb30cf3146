"""The reasons for refusing an update or a request, each with its HTTP status and title."""

import math
from collections.abc import Mapping
from typing import ClassVar

from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, UpdateError


class RefusalError(UpdateError):
    """Base of all refusals of an update. `status` is the HTTP status; the ledger records it."""

    status: ClassVar[int]
    title: ClassVar[str]


class MalformedUpdateError(RefusalError):
    """The file is not an update: truncated, not a tensor file, no metadata, unknown codec."""

    status, title = 400, "Not an update"


class StaleUpdateError(RefusalError):
    """A valid update, but of another round or base model."""

    status, title = 409, "Another round or base model"


class UploadEndedError(RefusalError):
    """The upload ended before its update was ingested: it expired, was terminated, or the phone started another one."""

    status, title = 410, "The upload has ended"


class UnknownRoundError(RefusalError):
    """The round does not exist, did not fail (`discard`), or its model file was deleted (`rollback`)."""

    exit_code = ServerRefusedError.exit_code
    status, title = 404, "No such round"


class RewoundNoiseError(UnknownRoundError):
    """A rollback would undo noise that a run of dp-ftrl has released."""

    status, title = 409, "Released noise can't be undone"


class RetryLaterError(RefusalError):
    """The phone cannot take part now, but may try again after `retry_seconds`."""

    def __init__(self, message: str, retry_seconds: float):
        super().__init__(message)
        self.retry_seconds = retry_seconds


class LateUpdateError(RetryLaterError):
    """The update's round is closed."""

    status, title = 409, "The round is closed"


class RoundFullError(RetryLaterError):
    """The round already has as many phones as `max_clients` allows."""

    status, title = 409, "The round is full"


class NotSelectedError(RetryLaterError):
    """The server did not sample this phone for the round, or no phone can take part in it."""

    status, title = 409, "Not selected for this round"


class RestingPhoneError(RetryLaterError):
    """The phone took part in a run of dp-ftrl too recently, or as often as the run allows."""

    status, title = 409, "The phone rests"


class DuplicatePhoneError(RefusalError):
    """The phone already has another update in this round; a phone takes part once."""

    status, title = 409, "The phone has already taken part"


class InvalidUpdateError(RefusalError):
    """An update of this round whose tensors, values or token count do not fit the model."""

    status, title = 422, "The update does not fit the model"


class NotOfCohortError(RetryLaterError):
    """A masked round does not wait for this phone: its cohort is fixed, or a stage that it missed has ended."""

    status, title = 409, "Not awaited in this round"


class OtherMessageError(RefusalError):
    """The phone has sent another message in this stage of a masked round, or another round is open."""

    status, title = 409, "Another message or round"


class InvalidMessageError(RefusalError):
    """A message of a masked round whose signature, keys or shares do not fit."""

    status, title = 422, "The message does not fit the cohort"


class RoundFailedError(RefusalError):
    """The round of an update or a masked message failed, or is over."""

    status, title = 410, "The round is over"


class RequestError(PhonogradError):
    """A request refused before or while its body is read. `status`: the HTTP status; `headers`: of the response."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class RoundClosingError(RequestError):
    """The round is closing: the server computes its model, and accepts updates again after `retry_seconds`."""

    def __init__(self, message: str, retry_seconds: float):
        super().__init__(503, message, {"Retry-After": str(math.ceil(retry_seconds))})


class UploadInterruptedError(PhonogradError):
    """The phone disconnected before it had sent the whole body."""


def one_line(error: Exception | str) -> str:
    """An error's message as one printable line of at most 1000 characters; parts of it may come from a hostile file."""
    return "".join(character if character.isprintable() else "?" for character in str(error))[:1000]
