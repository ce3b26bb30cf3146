"""One phone's part in a round, from its text to the server's receipt, in a thread of its own."""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.discovery import why_not
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.naming import text_of
from phonograd.android_harness.rounds.result import DropOut, End, PhoneRound, Stage
from phonograd.android_harness.rounds.sending import send_update
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.android_harness.rounds.training import Job, Part, Session, train_on_phone
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.client.server_client import Connection, CurrentRound, UploadReceipt, participation
from phonograd.device_runtime.update.seeds import seed_of

# Called from a phone's thread with its serial, what it does, how much is done and in all (bytes, or steps), and a note.
Progress = Callable[[str, Stage | End, int, int, str], None]
OpenSession = Callable[[str], AbstractContextManager[Session]]


@dataclass(frozen=True)
class RoundJob:
    """What all phones of a round have in common; `files`: see Job. open_session: takes a serial, holds that phone."""

    files: Mapping[str, Path]
    opened: CurrentRound
    settings: RoundSettings
    open_session: OpenSession
    stop: threading.Event
    progress: Progress


class PhoneTask:
    """One phone's part; `run` once, `outcome` at any time."""

    def __init__(self, job: RoundJob, phone: Phone, name: str, connection: Connection):
        self.phone, self.name = phone, name
        self._job, self._connection = job, connection
        self._part = Part()
        self._receipt: UploadReceipt | None = None
        self._drop_out: DropOut | None = None
        self._remark: str | None = None
        self._seed = seed_of(job.opened.base_sha256, job.opened.round, name)

    def run(self) -> None:
        """Take part; whatever goes wrong is in the outcome, and no other phone's concern."""
        try:
            self._take_part()
        except PhonogradError as error:
            self._drop_out = DropOut(self._part.stage, str(error), error.exit_code)
        except Exception as error:  # the other phones' results must not be lost by it
            message = f"a bug: {type(error).__name__}: {error} (report it)"
            self._drop_out = DropOut(self._part.stage, message, PhonogradError.exit_code)
        self._job.progress(self.phone.serial, "accepted" if self._receipt else "out", 1, 1, "")

    def outcome(self) -> PhoneRound:
        """How far it came; a task whose thread has not ended is one that was interrupted."""
        part, drop_out = self._part, self._drop_out
        if self._receipt is None and drop_out is None:
            drop_out = DropOut(part.stage, f"interrupted, and did not end in time; {self._unsure()}", 130)
        return PhoneRound(
            serial=self.phone.serial,
            name=self.name,
            model=self.phone.facts.model if self.phone.facts else None,
            seed=self._seed,
            seconds=dict(part.seconds),
            pushed_bytes=part.pushed_bytes,
            power_before=part.power_before,
            power=part.power,
            training=part.training,
            update=part.update,
            receipt=self._receipt,
            drop_out=drop_out,
            remark=self._remark,
        )

    def _take_part(self) -> None:
        part, settings = self._part, self._job.settings
        if not self.phone.ready:
            raise NoPhoneError(why_not(self.phone))
        part.stage = "place"
        refused = participation(self._connection, self.name)
        if refused is not None:
            raise ServerRefusedError(f"{self._connection}: no place for phone {self.name} in the round: {refused}")
        part.stage = "text"
        text = None if settings.texts is None else text_of(settings.texts, self.phone.serial, self.name)
        place = settings.updates / f"round-{self._job.opened.round}" / f"{self.name}.update"
        with storage_errors(place):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._train(text, place)
        self._upload(place)

    def _train(self, text: Path | None, place: Path) -> None:
        part, job = self._part, self._job
        task = Job(job.files, job.opened.round, self.name, text, job.settings)
        part.stage = "push"
        try:
            with job.open_session(self.phone.serial) as session:
                train_on_phone(
                    session,
                    task,
                    part,
                    place,
                    job.stop,
                    lambda stage, done, total, note: job.progress(self.phone.serial, stage, done, total, note),
                )
        except PhonogradError as error:
            if part.update is None:
                raise
            self._remark = f"its update is here, then: {error}"

    def _upload(self, place: Path) -> None:
        part, job = self._part, self._job
        with part.timed("upload"):
            self._receipt = send_update(
                self._connection,
                place,
                self.name,
                job.settings.patience_seconds,
                job.stop,
                lambda done, total: job.progress(self.phone.serial, "upload", done, total, "bytes"),
            )
        # It tells of the text, and the server has it.
        with storage_errors(place):
            place.unlink(missing_ok=True)
        if part.update is not None:
            part.update = replace(part.update, kept=None)

    def _unsure(self) -> str:
        return "look at the phone with phonograd devices" if self._part.update is None else "its update is kept"
