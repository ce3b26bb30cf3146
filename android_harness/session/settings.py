"""Settings of a session on a phone and of the training there, and their defaults."""

import re
from dataclasses import dataclass, fields

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import MAX_THREADS, PRECISION_CHOICES, PrecisionChoice

# A mask names at least one core. Only the program knows which cores a word means.
_CORES = re.compile(r"big|little|all|(0x)?(?=0*[1-9a-fA-F])[0-9a-fA-F]{1,256}")
LEAST_PRIORITY = 19  # phonograd-phone's limit
# The shell user's folder on every Android; files there may be executed.
WORK_FOLDER = "/data/local/tmp/phonograd"
# Names under the work folder: the program, and the folder of files that are removed when a session ends.
PROGRAM = "phonograd-phone"
TRANSIENT_FOLDER = "run"


@dataclass(frozen=True)
class SessionSettings:
    """Settings of a session.

    timeout_seconds: a phone whose program prints nothing for this long counts as lost, and a phone that receives no
    heartbeat for this long ends its work and cleans up. heartbeat_seconds: time between heartbeats; a quarter of
    `timeout_seconds` if that is less. reconnect_seconds: how long to wait for a lost phone to come back, only to report
    what happened to it. exit_seconds: how long a phone may take to end a session. keep_files: leave the pushed files on
    the phone for the next session.
    """

    folder: str = WORK_FOLDER
    keep_files: bool = False
    heartbeat_seconds: float = 2.0
    timeout_seconds: float = 300.0
    reconnect_seconds: float = 10.0
    exit_seconds: float = 30.0


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How phonograd-phone trains; None means its default.

    threads: at most one per core, None: one per core. cores: big (not much slower than the fastest), little, all, or a
    hexadecimal mask; phonograd-phone decides which cores these are, and reports them. output_sample: the softmax over
    the text's words and this many others, None: over the vocabulary. duty: share of the time that steps take, the rest
    of it is rests between them. nice: lower the priority to this nice value. Raises UsageError for impossible settings.
    """

    threads: int | None = None
    cores: str = "big"
    precision: PrecisionChoice = "fp32"
    output_sample: int | None = None
    duty: float | None = None
    nice: int | None = None

    def __post_init__(self) -> None:
        cores = "big, little, all, or a hexadecimal mask such as f0"
        require_settings(
            self,
            threads=(self.threads is None or 1 <= self.threads <= MAX_THREADS, f"1 to {MAX_THREADS}"),
            cores=(_CORES.fullmatch(self.cores) is not None, cores),
            precision=(self.precision in PRECISION_CHOICES, f"one of {', '.join(PRECISION_CHOICES)}"),
            output_sample=(self.output_sample is None or self.output_sample >= 1, "at least 1"),
            duty=(self.duty is None or 0 < self.duty <= 1, "more than 0 and at most 1"),
            nice=(self.nice is None or 0 <= self.nice <= LEAST_PRIORITY, f"0 to {LEAST_PRIORITY}"),
        )

    def options(self, **others: object) -> list[str]:
        """These settings as options of phonograd-phone train, with `others`, which may replace them.

        A setting that is None or False is left out, and True has no value.
        """
        chosen = {field.name: getattr(self, field.name) for field in fields(TrainingSettings)} | others
        return [
            part
            for name, value in chosen.items()
            if value is not None and value is not False
            for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
        ]


def require_settings(settings: object, **checks: tuple[bool, str]) -> None:
    """Raise UsageError for the first setting that does not hold; checks: by name, whether it does, what is expected."""
    for name, (holds, expected) in checks.items():
        if not holds:
            raise UsageError(f"`{name}` is {getattr(settings, name)!r}, expected {expected}")
