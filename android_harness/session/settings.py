"""Settings of a session on a phone and of the training there, and their defaults."""

import re
from typing import Annotated

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, Positive, Settings, Share, fields_of
from phonograd.device_runtime.engine.backend import MAX_THREADS, PrecisionChoice

# A mask names at least one core. Only the program knows which cores a word means.
_CORES = re.compile(r"big|little|all|(0x)?(?=0*[1-9a-fA-F])[0-9a-fA-F]{1,256}")
LEAST_PRIORITY = 19  # phonograd-phone's limit
# The shell user's folder on every Android; files there may be executed.
WORK_FOLDER = "/data/local/tmp/phonograd"
# Names under the work folder: the program, and the folder of files that are removed when a session ends.
PROGRAM = "phonograd-phone"
TRANSIENT_FOLDER = "run"


class SessionSettings(Settings, frozen=True):
    """Settings of a session."""

    folder: Annotated[str, about("Its folder on the phone.")] = WORK_FOLDER
    keep_files: Annotated[bool, about("Leave the pushed files on the phone for the next session.")] = False
    heartbeat_seconds: Annotated[
        Positive, about("Time between heartbeats; a quarter of `timeout_seconds` if that is less.")
    ] = 2.0
    timeout_seconds: Annotated[
        Positive,
        about("A phone whose program prints nothing for so long is lost; one without heartbeats cleans itself up."),
    ] = 300.0
    reconnect_seconds: Annotated[
        Positive, about("How long to wait for a lost phone to come back, only to report what happened to it.")
    ] = 10.0
    exit_seconds: Annotated[Positive, about("How long a phone may take to end a session.")] = 30.0


class TrainingSettings(Settings, frozen=True):
    """How phonograd-phone trains; None means its default."""

    threads: Annotated[
        int | None, Meta(ge=1, le=MAX_THREADS), about("CPU threads, at most one a core.  [default: one a core]")
    ] = None
    cores: Annotated[
        str, about("big (not much slower than the fastest), little, all, or a hexadecimal mask such as f0.")
    ] = "big"
    precision: Annotated[PrecisionChoice, about("Precision of the matrix products.")] = "fp32"
    output_sample: Annotated[
        Count | None,
        about("Train the softmax over the text's words and so many others, drawn at random.  [default: all words]"),
    ] = None
    duty: Annotated[
        Share | None, about("Share of the time that steps take; below 1, rests keep phones cooler.  [default: 1]")
    ] = None
    nice: Annotated[
        int | None, Meta(ge=0, le=LEAST_PRIORITY), about("Lower the priority to this nice value.  [default: it stays]")
    ] = None

    def check_together(self) -> None:
        """Raise ValueError for cores that no phone has."""
        known = _CORES.fullmatch(self.cores) is not None
        self.require("cores", known, "big, little, all, or a hexadecimal mask such as f0")

    def options(self, **others: object) -> list[str]:
        """Options of phonograd-phone train for these settings, with `others`, which may replace them.

        A setting that is None or False is left out, and True has no value.
        """
        chosen = {name: getattr(self, name) for name in fields_of(TrainingSettings)} | others
        return [
            part
            for name, value in chosen.items()
            if value is not None and value is not False
            for part in (f"--{name.replace('_', '-')}", *([] if value is True else [str(value)]))
        ]
