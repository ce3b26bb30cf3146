"""Errors of phones, each with its exit code; all others are in device_runtime/base/errors.py.

A message names the phone, the activity, what was expected and found, and the next step.
"""

from phonograd.device_runtime.base.errors import PhonogradError


class AdbError(PhonogradError):
    """adb is missing or does not run, or its server does not start."""

    exit_code = 19


class NoPhoneError(PhonogradError):
    """No phone is ready: none connected, not authorised, offline, low battery, too hot; or none has that serial."""

    exit_code = 20


class PhoneLostError(PhonogradError):
    """A phone disconnected, rebooted or stopped responding while something ran on it."""

    exit_code = 21


class PhoneTimeoutError(PhoneLostError):
    """A phone did not answer in time; it may still be connected."""


class WatchdogEndedError(PhoneLostError):
    """The watchdog on a phone ended before its session did, and the programs there with it."""


class PhoneBusyError(PhonogradError):
    """The phone is in use by another phonograd."""

    exit_code = 22


class PhoneRunError(PhonogradError):
    """The program on the phone failed; `exit_code` is the program's if it is documented, else 23."""

    exit_code = 23

    def __init__(self, message: str, exit_code: int | None = None):
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code


class PhoneStorageError(PhonogradError):
    """The phone's storage is full or read-only, or permission is denied; 11, as for this machine's."""

    exit_code = 11


class RegressionError(PhonogradError):
    """A phone is slower than in the baseline report, by more than was allowed."""

    exit_code = 24


class ReportError(PhonogradError):
    """A phone-bench JSON document is invalid or has another version, or two of them cannot be compared."""

    exit_code = 25
