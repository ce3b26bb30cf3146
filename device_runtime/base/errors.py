"""The errors that phonograd raises, and their exit codes.

A message names the thing, what was expected, what was found and the next step. The command line prints it as one
line on stderr and exits with `exit_code`; the server turns it into problem+json. Code 1 is for bugs, 2 is also click's
code for wrong usage, and 130 means interrupted.
"""

import sys


def how_to_install(extra: str) -> str:
    """How to get what an extra brings: from a checkout, as no package index has phonograd."""
    return f"in a checkout of phonograd, run: pip install '.[{extra}]'"


class PhonogradError(Exception):
    """Base of all errors that a user can fix. docs/exit-codes.md lists the values of `exit_code`."""

    exit_code = 1


class UsageError(PhonogradError):
    """Settings that are invalid or contradict each other."""

    exit_code = 2


class TextError(PhonogradError):
    """A text is missing, empty, or too short to fill one window."""

    exit_code = 3


class VocabularyError(PhonogradError):
    """A vocabulary file breaks its format: duplicates, missing `<unk>` or `<eos>`, wrong size."""

    exit_code = 4


class ArtifactsError(PhonogradError):
    """An artifacts folder is missing, incomplete, of another schema version, or was changed (hash)."""

    exit_code = 5


class WeightsError(PhonogradError):
    """A tensor file is truncated or malformed, or a tensor has a wrong name, shape or dtype, or is not finite; or a
    model computes something else than the artifacts made of its tensors.
    """

    exit_code = 6


class UpdateError(PhonogradError):
    """An update file is malformed, names an unknown codec, or was made from another model."""

    exit_code = 7


class ServerRefusedError(PhonogradError):
    """The aggregation server refused the request. status: the HTTP status, if there was one; retry_seconds: when the
    server says to come again, if it does.
    """

    exit_code = 8
    status: int | None = None
    retry_seconds: float | None = None


class ServerUnreachableError(PhonogradError):
    """The aggregation server did not answer, or the connection broke."""

    exit_code = 9


class UnsupportedError(PhonogradError):
    """This machine lacks a requested CPU feature or optional dependency."""

    exit_code = 10


class MissingExtraError(UnsupportedError):
    """A command needs an optional dependency that is not installed."""

    @classmethod
    def for_export(cls, what: str, error: ImportError) -> "MissingExtraError":
        """Return the error for `what`, which needs ONNX Runtime training: its packages end with Python 3.12."""
        how = how_to_install("export")
        if sys.version_info >= (3, 13):
            found = ".".join(map(str, sys.version_info[:2]))
            how = f"Python 3.10, 3.11 or 3.12 expected, found {found}; with one of those, {how}"
        return cls(f"{what} ({error}); {how}")


class StorageError(PhonogradError):
    """The file system reported an error: disk full, no permission, not a folder."""

    exit_code = 11


class TrainingError(PhonogradError):
    """Training failed: the loss or a weight is NaN or infinite, or training diverged."""

    exit_code = 12


class StateError(PhonogradError):
    """A training state is damaged, in use by another process, or belongs to another job."""

    exit_code = 17


class OutOfMemoryError(PhonogradError):
    """The system has no more memory; the same command may succeed later."""

    exit_code = 26


class UploadLimitError(PhonogradError):
    """A phone sent more bytes in a round than was allowed."""

    exit_code = 28


class TookPartError(PhonogradError):
    """A phone has had its part in this masked round or a later one."""

    exit_code = 29


class SelfTestError(PhonogradError):
    """The engine computes something else on this machine than on others."""

    exit_code = 30


class StoppedError(PhonogradError):
    """A signal stopped training; `exit_code` is the shell's convention, 128 plus the signal's number."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number


class BuildError(PhonogradError):
    """The native engine does not compile, or the result fails its checks."""

    exit_code = 15
