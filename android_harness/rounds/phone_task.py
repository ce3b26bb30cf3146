"""One phone's part of a round, from its text to the server's receipt; runs in its own thread."""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.discovery import not_ready_line
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.naming import find_text
from phonograd.android_harness.rounds.result import DropOut, End, PhoneRound, Stage
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.android_harness.rounds.training import Session, TaskState, TrainingJob, train_on_phone
from phonograd.android_harness.rounds.upload import send_update
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.client.server_client import Connection, CurrentRound, UploadReceipt, exclusion_reason
from phonograd.device_runtime.update.seeds import seed_of

# Called from a phone's thread with serial, stage, amount done, total amount (bytes or steps), and a note.
Progress = Callable[[str, Stage | End, int, int, str], None]
OpenSession = Callable[[str], AbstractContextManager[Session]]


@dataclass(frozen=True)
class RoundJob:
    """What all phones of a round share; `files`: see TrainingJob. open_session: makes a session from a serial."""

    files: Mapping[str, Path]
    opened: CurrentRound
    settings: RoundSettings
    open_session: OpenSession
    stop: threading.Event
    progress: Progress


class RoundTask:
    """One phone's part; call `run` once, `outcome` at any time."""

    def __init__(self, job: RoundJob, phone: Phone, name: str, connection: Connection):
        self.phone, self.name = phone, name
        self._job, self._connection = job, connection
        self._state = TaskState()
        self._receipt: UploadReceipt | None = None
        self._drop_out: DropOut | None = None
        self._remark: str | None = None
        self._seed = seed_of(job.opened.base_sha256, job.opened.round, name)

    def run(self) -> None:
        """Take part in the round; an error becomes part of the outcome and does not affect other phones."""
        try:
            self._participate()
        except PhonogradError as error:
            self._drop_out = DropOut(self._state.stage, str(error), error.exit_code)
        except Exception as error:  # a bug on one phone must not lose the others' results
            message = f"a bug: {type(error).__name__}: {error} (please report it)"
            self._drop_out = DropOut(self._state.stage, message, PhonogradError.exit_code)
        self._job.progress(self.phone.serial, "accepted" if self._receipt else "out", 1, 1, "")

    def outcome(self) -> PhoneRound:
        """The result so far; if the thread has not ended, the task was interrupted."""
        state, drop_out = self._state, self._drop_out
        if self._receipt is None and drop_out is None:
            drop_out = DropOut(state.stage, f"interrupted, and did not stop in time; {self._interruption_hint()}", 130)
        return PhoneRound(
            serial=self.phone.serial,
            name=self.name,
            model=self.phone.facts.model if self.phone.facts else None,
            seed=self._seed,
            seconds=dict(state.seconds),
            pushed_bytes=state.pushed_bytes,
            power_before=state.power_before,
            power=state.power,
            kept_awake=state.kept_awake,
            training=state.training,
            update=state.update,
            receipt=self._receipt,
            drop_out=drop_out,
            remark=self._remark,
        )

    def _participate(self) -> None:
        state, settings = self._state, self._job.settings
        if not self.phone.ready:
            raise NoPhoneError(not_ready_line(self.phone))
        state.stage = "place"
        refused = exclusion_reason(self._connection, self.name)
        if refused is not None:
            raise ServerRefusedError(f"{self._connection}: phone {self.name} cannot take part in the round: {refused}")
        state.stage = "text"
        text = None if settings.texts is None else find_text(settings.texts, self.phone.serial, self.name)
        update_path = settings.updates / f"round-{self._job.opened.round}" / f"{self.name}.update"
        with storage_errors(update_path):
            update_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._train(text, update_path)
        self._upload(update_path)

    def _train(self, text: Path | None, update_path: Path) -> None:
        state, job = self._state, self._job
        task = TrainingJob(job.files, job.opened.round, self.name, text, job.settings)
        state.stage = "push"
        try:
            with job.open_session(self.phone.serial) as session:
                train_on_phone(
                    session,
                    task,
                    state,
                    update_path,
                    job.stop,
                    lambda stage, done, total, note: job.progress(self.phone.serial, stage, done, total, note),
                )
        except PhonogradError as error:
            if state.update is None:
                raise
            self._remark = f"after its update was pulled: {error}"

    def _upload(self, update_path: Path) -> None:
        state, job = self._state, self._job
        with state.timed("upload"):
            self._receipt = send_update(
                self._connection,
                update_path,
                self.name,
                job.settings.patience_seconds,
                job.stop,
                lambda done, total: job.progress(self.phone.serial, "upload", done, total, "bytes"),
            )
        # It reveals something about the text, and the server has it now.
        with storage_errors(update_path):
            update_path.unlink(missing_ok=True)
        if state.update is not None:
            state.update = replace(state.update, kept=None)

    def _interruption_hint(self) -> str:
        return "check the phone with phonograd devices" if self._state.update is None else "its update is kept"
