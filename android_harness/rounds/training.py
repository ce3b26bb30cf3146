"""The part of a round within a phone's session: push files, train, pull the update."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.phone_artifacts import ARTIFACTS_FOLDER
from phonograd.android_harness.result import KeptAwake, PowerState, Pushed
from phonograd.android_harness.rounds.result import PulledUpdate, Stage, Training
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.device_runtime.base.documents import FieldError, read
from phonograd.device_runtime.base.errors import TextError

# Names on the phone. The text and the update are removed when the session ends.
TEXT, REHEARSAL, UPDATE = "text.txt", "rehearsal.txt", "update.safetensors"

# Called with the stage, the amount done, the total amount (bytes or steps), and a note.
StageProgress = Callable[[Stage, int, int, str], None]


class Session(Protocol):
    """What a round needs of a PhoneSession; paths without a leading slash are relative to the phone's folder."""

    def sync(self, files: Mapping[str, Path], progress: Callable[[int, int, str], None] | None = None) -> Pushed: ...  # noqa: D102

    def run(  # noqa: D102
        self,
        arguments: Sequence[str],
        on_event: Callable[[float, dict[str, Any]], None],
        stop: threading.Event,
    ) -> float: ...

    def power_states(self, keep_awake: bool) -> tuple[PowerState, PowerState, KeptAwake]: ...  # noqa: D102

    def pull(self, name: str, local: Path, sha256: str) -> None: ...  # noqa: D102

    def transient(self, name: str) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class TrainingJob:
    """A phone's training for `round`: on `text`, or (None) on the text on the phone.

    common: files for all phones by their name on the phone: the program, and artifacts with the round's model.
    """

    common: Mapping[str, Path]
    round: int
    name: str
    text: Path | None
    settings: RoundSettings

    def files(self, session: Session) -> dict[str, Path]:
        """The files that the phone needs, by their name there; the user's text is removed when the session ends."""
        text = {} if self.text is None else {session.transient(TEXT): self.text}
        rehearsal = self.settings.training.rehearsal
        return {**self.common, **text, **({} if rehearsal is None else {REHEARSAL: rehearsal})}

    def arguments(self, session: Session) -> list[str]:
        """The command line after the program's name."""
        text = self.settings.text_on_phone if self.text is None else session.transient(TEXT)
        line = ["train", ARTIFACTS_FOLDER, "--user", text, "--update", session.transient(UPDATE)]
        line += ["--round", str(self.round), "--phone", self.name]
        if self.settings.training.rehearsal is not None:
            line += ["--rehearsal", REHEARSAL]
        return line + self.settings.training.options()


@dataclass
class TaskState:
    """A phone's progress and results so far: current stage, seconds of each stage, results."""

    stage: Stage = "ready"
    seconds: dict[str, float] = field(default_factory=dict)
    pushed_bytes: int | None = None
    power_before: PowerState | None = None
    power: PowerState | None = None
    kept_awake: KeptAwake | None = None
    training: Training | None = None
    update: PulledUpdate | None = None

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Set the stage and measure how long the block takes."""
        self.stage, began = stage, time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = time.monotonic() - began


def train_on_phone(
    session: Session,
    job: TrainingJob,
    state: TaskState,
    update_path: Path,
    stop: threading.Event,
    progress: StageProgress,
) -> None:
    """Train one epoch on the phone and pull its update to `update_path`; `state` records the progress.

    Raises the session's errors, and TextError if the phone has no usable text.
    """
    with state.timed("push"):
        pushed = session.sync(job.files(session), lambda done, total, name: progress("push", done, total, name))
        state.pushed_bytes = pushed.nbytes
    with state.timed("train"):
        state.power_before, state.power, state.kept_awake = session.power_states(keep_awake=True)
        state.training, update = _train(session, job, stop, progress)
    with state.timed("pull"):
        progress("pull", 0, update.nbytes, "")
        session.pull(session.transient(UPDATE), update_path, update.sha256)
        state.update = replace(update, kept=str(update_path))


def _train(
    session: Session, job: TrainingJob, stop: threading.Event, progress: StageProgress
) -> tuple[Training, PulledUpdate]:
    reports: list[dict[str, Any]] = []

    def on_event(at: float, event: dict[str, Any]) -> None:
        del at
        if event.get("event") == "step":
            progress("train", int(event["step"]), int(event["steps"]), f"{event['loss']:.3f} nats/token")
        if event.get("event") == "report":
            reports.append(event)

    try:
        session.run(job.arguments(session), on_event, stop)
    except PhoneRunError as error:
        if error.exit_code != TextError.exit_code or job.text is not None:
            raise
        raise TextError(
            f"{error}; put the user's text on the phone (adb push), name another by `text_on_phone`, or give `texts`"
        ) from error
    if not reports:
        raise PhoneRunError("phonograd-phone train printed no report; is it of this version?")
    return _parsed(reports[-1])


def _parsed(report: dict[str, Any]) -> tuple[Training, PulledUpdate]:
    try:
        return read(Training, report), read(PulledUpdate, report.get("update"))
    except FieldError as error:
        raise PhoneRunError(f"phonograd-phone's report has a missing or wrong field ({error})") from error
