"""One phone's part of a round, from its text to the server's receipt; runs in its own thread."""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from phonograd.android_harness.errors import NoPhoneError, PhoneRunError
from phonograd.android_harness.phone_artifacts import ARTIFACTS_FOLDER
from phonograd.android_harness.phones.discovery import not_ready_line
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.masked_part import OverAdb, PhoneMember
from phonograd.android_harness.rounds.naming import find_text
from phonograd.android_harness.rounds.result import DropOut, End, PhoneRound, PulledUpdate, Stage, read_training
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.android_harness.rounds.upload import send_update
from phonograd.android_harness.session import PhoneSession
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, StoppedError, TextError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors
from phonograd.device_runtime.client.masked_round import take_part
from phonograd.device_runtime.client.server_client import Connection, CurrentRound, UploadReceipt, exclusion_reason
from phonograd.device_runtime.update.seeds import seed_of

# Names on the phone. The text and the update are removed when the session ends.
TEXT, REHEARSAL, UPDATE = "text.txt", "rehearsal.txt", "update.safetensors"
# Called from a phone's thread with serial, stage, amount done, total amount (bytes or steps), and a note.
Progress = Callable[[str, Stage | End, int, int, str], None]
OpenSession = Callable[[str], AbstractContextManager[PhoneSession]]


@dataclass(frozen=True)
class RoundJob:
    """What all phones of a round share. open_session: makes a session from a serial.

    files: those for all phones by their name there: the program, and artifacts with the round's model.
    """

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
        self._stage: Stage = "ready"
        model = phone.facts.model if phone.facts else None
        self._phone_round = PhoneRound(
            phone.serial, name, model, seed_of(job.opened.base_sha256, job.opened.round, name)
        )

    def run(self) -> None:
        """Take part in the round; an error becomes part of the outcome and does not affect other phones."""
        phone_round = self._phone_round
        try:
            self._participate()
        except PhonogradError as error:
            phone_round.drop_out = DropOut(self._stage, str(error), error.exit_code)
        except Exception as error:  # a bug on one phone must not lose the others' results
            message = f"a bug: {type(error).__name__}: {error} (please report it)"
            phone_round.drop_out = DropOut(self._stage, message, PhonogradError.exit_code)
        self._job.progress(self.phone.serial, "accepted" if phone_round.receipt else "out", 1, 1, "")

    def outcome(self) -> PhoneRound:
        """The result so far; if the thread has not ended, the task was interrupted."""
        phone_round = dataclasses.replace(self._phone_round, seconds=dict(self._phone_round.seconds))
        if not phone_round.ended:
            hint = "its update is kept" if phone_round.update else "check the phone with phonograd devices"
            phone_round.drop_out = DropOut(self._stage, f"interrupted, and did not stop in time; {hint}", 130)
        return phone_round

    def _participate(self) -> None:
        settings = self._job.settings
        if not self.phone.ready:
            raise NoPhoneError(not_ready_line(self.phone))
        self._stage = "place"
        refused = exclusion_reason(self._connection, self.name)
        if refused is not None:
            raise ServerRefusedError(f"{self._connection}: phone {self.name} cannot take part in the round: {refused}")
        self._stage = "text"
        text = None if settings.texts is None else find_text(settings.texts, self.phone.serial, self.name)
        update_path = settings.updates / f"round-{self._job.opened.round}" / f"{self.name}.update"
        with storage_errors(update_path):
            update_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._stage = "push"
        try:
            with self._job.open_session(self.phone.serial) as session:
                self._train(session, text, update_path)
        except PhonogradError as error:
            if self._phone_round.update is None:
                raise
            self._phone_round.remark = f"after its update was pulled: {error}"
        if self._job.opened.masked is None:
            self._upload(update_path)

    def _train(self, session: PhoneSession, text: Path | None, update_path: Path) -> None:
        """Train one epoch, and pull its update or mask it; `text` is pushed, or (None) on the phone already."""
        phone_round, job = self._phone_round, self._job
        rehearsal = job.settings.training.rehearsal
        files = dict(job.files)
        if text is not None:
            files[session.transient(TEXT)] = text
        if rehearsal is not None:
            files[REHEARSAL] = rehearsal
        with self._time_stage("push"):
            phone_round.pushed_bytes = session.sync(files, self._report).nbytes
        member = None
        if job.opened.masked is not None:  # before it trains, which would be in vain without a certificate
            self._stage = "mask"
            member = PhoneMember(session, self._connection, self.name, job.stop)
            phone_round.identity = member.identity
            member.admit(job.settings.masking)
        with self._time_stage("train"):
            phone_round.power_before, phone_round.power, phone_round.kept_awake = session.power_states(keep_awake=True)
            phone_round.training, update = read_training(self._run(session, text))
        if member is not None:
            with self._time_stage("mask"):
                self._mask(session, member, update_path)
            return
        with self._time_stage("pull"):
            self._report(0, update.nbytes)
            session.pull(session.transient(UPDATE), update_path, update.sha256)
            phone_round.update = replace(update, kept=str(update_path))

    def _run(self, session: PhoneSession, text: Path | None) -> dict[str, Any]:
        settings, reports = self._job.settings, list[dict[str, Any]]()
        user = settings.text_on_phone if text is None else session.transient(TEXT)
        line = ["train", ARTIFACTS_FOLDER, "--user", user, "--update", session.transient(UPDATE)]
        line += ["--round", str(self._job.opened.round), "--phone", self.name]
        line += [] if settings.training.rehearsal is None else ["--rehearsal", REHEARSAL]
        if (run := self._job.opened.run) is not None:
            folder = f"runs/{quote(str(self._connection), safe='')}"
            line += ["--run", run, "--run-history", f"{folder}/phone-{self.name}.json"]

        def on_event(_at: float, event: dict[str, Any]) -> None:
            if event.get("event") == "step":
                self._report(int(event["step"]), int(event["steps"]), f"{event['loss']:.3f} nats/token")
            if event.get("event") == "report":
                reports.append(event)

        try:
            session.run([*line, *settings.training.command_line(self._job.opened.masked)], on_event, self._job.stop)
        except PhoneRunError as error:
            if error.exit_code != TextError.exit_code or text is not None:
                raise
            raise TextError(
                f"{error}; put the user's text on the phone (adb push), name another by `text_on_phone`, "
                "or give `texts`"
            ) from error
        if not reports:
            raise PhoneRunError("phonograd-phone train printed no report; is it of this version?")
        return reports[-1]

    def _mask(self, session: PhoneSession, member: PhoneMember, masked: Path) -> None:
        """Take part in the masked round with the grid update on the phone. masked: where the masked update is here."""
        part = OverAdb(session, member, session.transient(UPDATE), self._job.opened.round, masked)
        try:
            receipt = take_part(self._connection, part, self._send, self._waiting, self._sleep)
            assert receipt is not None  # a phone that sent its update earlier has no place in the round
            update = PulledUpdate("masked", masked.stat().st_size, sha256_of_file(masked))
        finally:
            masked.unlink(missing_ok=True)  # of no use in another round
        self._phone_round.update, self._phone_round.receipt = update, receipt

    def _waiting(self, kind: str, _seconds: float) -> None:
        self._report(0, 1, f"waiting: {kind}")

    def _sleep(self, seconds: float) -> None:
        if self._job.stop.wait(seconds):
            raise StoppedError(f"phone {self.name}: interrupted while it waited for other phones", signal.SIGINT)

    def _send(self, update_path: Path) -> UploadReceipt:
        job = self._job
        return send_update(
            self._connection, update_path, self.name, job.settings.patience_seconds, job.stop, self._report
        )

    def _upload(self, update_path: Path) -> None:
        phone_round = self._phone_round
        with self._time_stage("upload"):
            phone_round.receipt = self._send(update_path)
        # It reveals something about the text, and the server has it now.
        with storage_errors(update_path):
            update_path.unlink(missing_ok=True)
        if phone_round.update is not None:
            phone_round.update = replace(phone_round.update, kept=None)

    def _report(self, done: int, total: int, note: str = "") -> None:
        self._job.progress(self.phone.serial, self._stage, done, total, note)

    @contextmanager
    def _time_stage(self, stage: Stage) -> Iterator[None]:
        self._stage, began = stage, time.monotonic()
        try:
            yield
        finally:
            self._phone_round.seconds[stage] = time.monotonic() - began
