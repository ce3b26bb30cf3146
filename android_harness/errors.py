"""What can go wrong with phones, and the exit code of each; the others are in device_runtime/base/errors.py.

A message names the phone, what was being done, what was expected and found, and the next step.
"""

from phonograd.device_runtime.base.errors import PhonogradError


class AdbError(PhonogradError):
    """adb is missing, is no adb, or its server does not start."""

    exit_code = 19


class NoPhoneError(PhonogradError):
    """No phone is ready: none attached, not authorised, offline, low on battery, too hot; or none has that serial."""

    exit_code = 20


class PhoneLostError(PhonogradError):
    """A phone went away, rebooted or fell silent while something ran on it."""

    exit_code = 21


class PhoneSilentError(PhoneLostError):
    """A phone did not answer in time; it may still be attached."""


class KeeperEndedError(PhoneLostError):
    """What holds a phone for a session ended there before the session did, and with it whatever ran."""


class PhoneBusyError(PhonogradError):
    """Another harness is at work on the phone."""

    exit_code = 22


class PhoneRunError(PhonogradError):
    """The program on the phone ended badly; `exit_code` is its own where it is documented, else 23."""

    exit_code = 23

    def __init__(self, message: str, exit_code: int | None = None):
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class PhoneStorageError(PhonogradError):
    """The phone's storage refused: full, read-only, no permission; 11, as for this machine's."""

    exit_code = 11


class SlowerError(PhonogradError):
    """A phone is slower than in the report it is compared with, by more than was allowed."""

    exit_code = 24


class ReportError(PhonogradError):
    """A phone-bench JSON document is invalid or of another version, or two of them cannot be compared."""

    exit_code = 25
