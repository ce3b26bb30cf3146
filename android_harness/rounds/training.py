"""One phone while it is held: what it lacks is pushed, it trains, its update is pulled."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.phone_artifacts import FOLDER
from phonograd.android_harness.result import PowerState, Pushed
from phonograd.android_harness.rounds.result import PulledUpdate, Stage, Training
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.device_runtime.base.documents import FieldError, read
from phonograd.device_runtime.base.errors import TextError

# Names on the phone; the text and the update are transient there.
TEXT, REHEARSAL, UPDATE = "text.txt", "rehearsal.txt", "update.safetensors"

# Called with what is being done, how much is done and in all (bytes, or steps), and a note.
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

    def power_states(self, hold: bool) -> tuple[PowerState, PowerState]: ...  # noqa: D102

    def pull(self, name: str, local: Path, sha256: str) -> None: ...  # noqa: D102

    def transient(self, name: str) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Job:
    """What the phone of that name is to train for `round`: on `text`, or (None) on the text that it has.

    common: the files that all phones get, by their name on the phone: program, artifacts with the round's model.
    """

    common: Mapping[str, Path]
    round: int
    name: str
    text: Path | None
    settings: RoundSettings

    def files(self, session: Session) -> dict[str, Path]:
        """What the phone must have, by its name there; the user's text for as long as the session lasts."""
        text = {} if self.text is None else {session.transient(TEXT): self.text}
        rehearsal = self.settings.training.rehearsal
        return {**self.common, **text, **({} if rehearsal is None else {REHEARSAL: rehearsal})}

    def arguments(self, session: Session) -> list[str]:
        """The command line after the program's name."""
        text = self.settings.text_on_phone if self.text is None else session.transient(TEXT)
        line = ["train", FOLDER, "--user", text, "--update", session.transient(UPDATE)]
        line += ["--round", str(self.round), "--phone", self.name]
        if self.settings.training.rehearsal is not None:
            line += ["--rehearsal", REHEARSAL]
        return line + self.settings.training.options()


@dataclass
class Part:
    """One phone's part so far: the stage it is in, seconds of each stage it has been in, what came of them."""

    stage: Stage = "ready"
    seconds: dict[str, float] = field(default_factory=dict)
    pushed_bytes: int | None = None
    power_before: PowerState | None = None
    power: PowerState | None = None
    training: Training | None = None
    update: PulledUpdate | None = None

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        """Be in `stage` while the block lasts."""
        self.stage, began = stage, time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = time.monotonic() - began


def train_on_phone(
    session: Session, job: Job, part: Part, place: Path, stop: threading.Event, progress: StageProgress
) -> None:
    """Train one epoch on the phone and bring its update to `place`, noting in `part` how far it came.

    Raises what the session does; TextError if the phone has no text that can be trained on.
    """
    with part.timed("push"):
        pushed = session.sync(job.files(session), lambda done, total, name: progress("push", done, total, name))
        part.pushed_bytes = pushed.nbytes
    with part.timed("train"):
        part.power_before, part.power = session.power_states(hold=True)
        part.training, update = _train(session, job, stop, progress)
    with part.timed("pull"):
        progress("pull", 0, update.nbytes, "")
        session.pull(session.transient(UPDATE), place, update.sha256)
        part.update = replace(update, kept=str(place))


def _train(session: Session, job: Job, stop: threading.Event, progress: StageProgress) -> tuple[Training, PulledUpdate]:
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
            f"{error}; put the user's text on the phone (adb push), name another with --text-on-phone, or give --texts"
        ) from error
    if not reports:
        raise PhoneRunError("phonograd-phone train ended without its report; is it of this version?")
    return _parsed(reports[-1])


def _parsed(report: dict[str, Any]) -> tuple[Training, PulledUpdate]:
    try:
        return read(Training, report), read(PulledUpdate, report.get("update"))
    except FieldError as error:
        raise PhoneRunError(f"phonograd-phone's report lacks a field or holds a wrong one ({error})") from error
