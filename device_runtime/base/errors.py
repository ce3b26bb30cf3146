"""Every error a user of phonograd can meet, and the exit code of each.

A message names the thing, what was expected, what was found and the next step. The command line prints it as one
line on stderr and leaves with `exit_code`; the server turns it into problem+json. Code 1 is kept for bugs, 2 is
also click's, for wrong usage of a command, 130 an interrupt's.
"""


class PhonogradError(Exception):
    """Base of all errors that are a user's to mend. `exit_code` is documented in docs/exit-codes.md."""

    exit_code = 1


class UsageError(PhonogradError):
    """Settings that can't be, or that do not go together."""

    exit_code = 2


class TextError(PhonogradError):
    """A text is missing, empty, or too short to fill one window."""

    exit_code = 3


class VocabularyError(PhonogradError):
    """A vocabulary file breaks its format: duplicates, missing `<unk>` or `<eos>`, wrong size."""

    exit_code = 4


class ArtifactsError(PhonogradError):
    """An artifacts folder is missing, half written, of another schema version, or altered (hash)."""

    exit_code = 5


class WeightsError(PhonogradError):
    """A tensor file is truncated or hostile, or its tensors have a wrong name, shape, dtype, or are not finite."""

    exit_code = 6


class UpdateError(PhonogradError):
    """An update file is not one, names an unknown codec, or was made from another model."""

    exit_code = 7


class ServerRefusedError(PhonogradError):
    """The aggregation server answered, and said no; `status` is HTTP's where the answer had one."""

    exit_code = 8
    status: int | None = None


class ServerUnreachableError(PhonogradError):
    """The aggregation server did not answer, or the connection broke off."""

    exit_code = 9


class UnsupportedError(PhonogradError):
    """This machine lacks what was asked for: a CPU feature, or an optional dependency."""

    exit_code = 10


class MissingExtraError(UnsupportedError):
    """A command needs an optional dependency that is not installed."""


class StorageError(PhonogradError):
    """The file system refused: disk full, no permission, not a folder."""

    exit_code = 11


class TrainingError(PhonogradError):
    """Training left the finite numbers: the loss or a weight is NaN or infinite."""

    exit_code = 12


class StateError(PhonogradError):
    """A training state is damaged, in use by another process, or another job's."""

    exit_code = 17


class OutOfMemoryError(PhonogradError):
    """The system has no more memory; the same command may succeed later."""

    exit_code = 26


class StoppedError(PhonogradError):
    """A signal asked training to end; `exit_code` is a shell's for a process that it ended: 128 and its number."""

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.exit_code = 128 + signal_number


class BuildError(PhonogradError):
    """The native engine does not compile, or what was built is not what it must be."""

    exit_code = 15
